//! Paths, links and ids that mean harm: whatever they say, nothing outside their tree is read, written or removed.

use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use holdfast_sidecar::workspace::{Condition, Isolation, Listing, Part, Tree, TreeLimits, Trees};
use proptest::prelude::*;
use serde_json::json;

use crate::kit::{self, label, put, slot};
use crate::tools::{Desk, text};

const SECRET: &str = "the secret of another user";

/// Pieces that paths which mean harm are made of.
fn piece() -> impl Strategy<Value = String> {
    let known = prop::sample::select(vec![
        "..", ".", "/", "//", "\\", "..\\", "...", "%2e%2e", "%2f", "～", "．．", "‥", "∕", "⁄", "／",
        "\u{202e}", "\u{200b}", "\u{feff}", "\0", "\n", "\u{7f}", "out", "up", "abs", "loop", "tree", "deep",
        "file", "secret", "meta", "files", "users", "agents", "global", "lock", "etc", "passwd", "proc",
        "self", "root", "C:", "nul", "-", "*", "{", "}", "~", " ", "é", "e\u{301}", "😀", "a",
    ]);
    prop_oneof![4 => known.prop_map(str::to_owned), 1 => any::<char>().prop_map(String::from)]
}

fn made_of_pieces() -> impl Strategy<Value = String> {
    let joint = prop::sample::select(vec!["/", "/", "/", "", "\\"]);
    prop::collection::vec((piece(), joint), 1..7)
        .prop_map(|pieces| pieces.into_iter().map(|(piece, joint)| format!("{piece}{joint}")).collect())
}

/// By way of the links that `check_local` leaves.
fn through_a_link() -> impl Strategy<Value = String> {
    let links = prop::sample::select(vec!["out", "up", "abs", "loop", "tree", "file", "meta", "deep/../out"]);
    let behind =
        prop::sample::select(vec!["", "/secret", "/lock", "/etc/passwd", "/../secret", "/new", "/a/b"]);
    (links, behind).prop_map(|(link, behind)| format!("{link}{behind}"))
}

fn hostile_path() -> impl Strategy<Value = String> {
    prop_oneof![2 => made_of_pieces(), 1 => through_a_link()]
}

/// Everything below a folder, links not followed.
fn snapshot(folder: &Path, but_not: &Path) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
    let mut found = BTreeMap::new();
    let mut left = vec![folder.to_owned()];
    while let Some(folder) = left.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            let kind = std::fs::symlink_metadata(&path).expect("there").file_type();
            if path == but_not {
                continue;
            }
            if kind.is_dir() {
                left.push(path.clone());
            }
            found.insert(path.clone(), kind.is_file().then(|| std::fs::read(&path).expect("a file")));
        }
    }
    found
}

async fn try_everything(trees: &dyn Trees, desk: &Desk, tree: &Tree, at: &str, n: usize) -> Vec<String> {
    let mut said = Vec::new();
    for (name, input) in [
        ("read_file", json!({"path": at})),
        ("write_file", json!({"path": at, "content": "mine"})),
        ("edit_file", json!({"path": at, "old_string": "secret", "new_string": "gone"})),
        ("list_files", json!({"path": at})),
        ("glob_files", json!({"pattern": at})),
        ("glob_files", json!({"pattern": "**", "path": at})),
        ("grep_files", json!({"pattern": "secret", "path": at})),
    ] {
        said.push(text(&desk.output(name, &input, &format!("{n}-{name}")).await));
    }
    let listing = Listing { after: Some(at.to_owned()), ..Listing::all(9) };
    said.extend(
        trees.list(tree, &listing).await.map(|page| format!("{page:?}")).map_err(|error| label(&error)),
    );
    said.extend(trees.texts(tree, &[at.to_owned()], 9).await.map(|texts| format!("{texts:?}")));
    if let Ok(path) = holdfast_sidecar::workspace::FilePath::new(at) {
        let found = trees.read(tree, &path, Part::WHOLE).await;
        said.extend(found.ok().flatten().map(|found| String::from_utf8_lossy(&found.bytes).into_owned()));
        let _ = trees.put(tree, &path, &put("mine too")).await;
        let _ = trees.delete(tree, &path, &Condition::Any).await;
    }
    said
}

fn check_local(paths: &[String]) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let outside = tempfile::tempdir().expect("a folder");
        std::fs::write(outside.path().join("secret"), SECRET).expect("a file");
        let place = kit::local(TreeLimits::default());
        let trees = place.trees("ns.agent");
        let (owner, other) = (slot(Some("u"), "s"), slot(Some("v"), "s"));
        let (tree, others) = (Tree::of(Isolation::User, &owner), Tree::of(Isolation::User, &other));
        kit::write(&*trees, &others, "secret", SECRET).await;
        kit::write(&*trees, &tree, "deep/file", "mine").await;
        let root = trees.folder().expect("a folder").to_owned();
        let users = root.join("agents/ns.agent/users");
        let of = |marker: &str| {
            let trees = std::fs::read_dir(&users).expect("users").map(|entry| entry.expect("a tree").path());
            trees.into_iter().find(|tree| tree.join("files").join(marker).exists()).expect("the tree")
        };
        let (mine, theirs) = (of("deep"), of("secret"));
        // Links that somebody with a shell on the volume might leave.
        let files = mine.join("files");
        for (name, target) in [
            ("out", outside.path().to_owned()),
            ("up", "../..".into()),
            ("abs", "/".into()),
            ("loop", "loop".into()),
            ("tree", theirs.join("files")),
            ("file", theirs.join("files/secret")),
            ("meta", mine.join("meta")),
        ] {
            symlink(target, files.join(name)).expect("a link");
        }
        let before = (snapshot(&theirs, Path::new("")), snapshot(outside.path(), Path::new("")));
        let desk = Desk::new(&trees, Isolation::User, owner);
        for (n, at) in paths.iter().enumerate() {
            for said in try_everything(&*trees, &desk, &tree, at, n).await {
                assert!(!said.contains(SECRET), "{at:?} reads what is not its own: {said}");
            }
        }
        let after = (snapshot(&theirs, Path::new("")), snapshot(outside.path(), Path::new("")));
        assert_eq!(before, after, "{paths:?}");
        // In the whole folder there is nothing new but in the tree itself.
        let names = snapshot(&root, &mine).into_keys().filter(|path| !path.starts_with(&theirs));
        let names: Vec<_> = names.map(|path| path.strip_prefix(&root).expect("inside").to_owned()).collect();
        let folders = ["agents", "agents/ns.agent", "agents/ns.agent/sessions", "agents/ns.agent/users"];
        assert_eq!(names, folders.map(PathBuf::from), "{paths:?}");
    });
}

fn check_remote(paths: &[String]) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let place = kit::remote(TreeLimits::default());
        let trees = place.trees("ns.agent");
        let (owner, other) = (slot(Some("u"), "s"), slot(Some("v"), "s"));
        let (tree, others) = (Tree::of(Isolation::User, &owner), Tree::of(Isolation::User, &other));
        kit::write(&*trees, &others, "secret", SECRET).await;
        let before = trees.list(&others, &Listing::all(9)).await;
        let desk = Desk::new(&trees, Isolation::User, owner);
        for (n, at) in paths.iter().enumerate() {
            for said in try_everything(&*trees, &desk, &tree, at, n).await {
                assert!(!said.contains(SECRET), "{at:?} reads what is not its own: {said}");
            }
        }
        assert_eq!(trees.list(&others, &Listing::all(9)).await, before, "{paths:?}");
        assert_eq!(kit::read(&*trees, &others, "secret").await.as_deref(), Some(SECRET));
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_path_leaves_its_folder(paths in prop::collection::vec(hostile_path(), 1..12)) {
        check_local(&paths);
    }

    #[test]
    fn no_path_leaves_its_keys(paths in prop::collection::vec(hostile_path(), 1..12)) {
        check_remote(&paths);
    }
}

/// What is known to have worked elsewhere, each tried by itself.
#[test]
fn none_of_the_old_tricks_works() {
    let tricks = [
        "../secret",
        "..",
        "out/secret",
        "out",
        "up/secret",
        "abs/etc/passwd",
        "abs",
        "loop",
        "loop/x",
        "tree/secret",
        "file",
        "meta/lock",
        "meta/usage",
        "deep/../../secret",
        "deep/../tree/secret",
        "/out/secret",
        "./out/secret",
        "././out/secret",
        "..%2fsecret",
        "．．/secret",
        "..\\secret",
        "deep\0/../secret",
        "~/secret",
        "/proc/self/root/etc/passwd",
    ];
    let paths: Vec<String> = tricks.map(str::to_owned).to_vec();
    check_local(&paths);
    check_remote(&paths);
}
