//! Whose files are whose.

use holdfast_sidecar::workspace::{FileError, Isolation, Listing, Page, Tree};

use crate::kit::{Bench, path, read, slot, stamp, stamped, user, write};

pub async fn no_tree_sees_another(bench: Bench) {
    let trees = bench.trees();
    let session = |user, session| Tree::Session(slot(user, session));
    let long = "x".repeat(512);
    let all = [
        user("a"),
        user("A"),
        user("b"),
        user("../a"),
        user("a/b"),
        user("*"),
        user("~"),
        user("anonymous"),
        user("{a}"),
        user("."),
        user(".."),
        user("a\0b"),
        user("😀"),
        user(&long),
        session(None, "a"),
        session(Some("a"), "a"),
        session(Some("anonymous"), "a"),
        session(Some("~"), "a"),
        session(Some("a"), "b/c"),
        session(Some("a/b"), "c"),
        Tree::Agent,
    ];
    for (n, tree) in all.iter().enumerate() {
        assert_eq!(
            trees.list(tree, &Listing::all(9)).await,
            Ok(Page::default()),
            "{tree:?} sees what is not its own"
        );
        write(&*trees, tree, "mine", format!("{n}")).await;
    }
    for (n, tree) in all.iter().enumerate() {
        assert_eq!(read(&*trees, tree, "mine").await, Some(n.to_string()), "{tree:?}");
    }
}

pub async fn agents_share_only_what_is_global(bench: Bench) {
    let place = (bench.open)(Default::default());
    let (one, two) = (place.trees("ns.one"), place.trees("ns.two"));
    let caller = slot(Some("u"), "s");
    let name = crate::stores::random_prefix();
    for isolation in [Isolation::User, Isolation::Session, Isolation::Agent, Isolation::Global] {
        let tree = Tree::of(isolation, &caller);
        write(&*one, &tree, &name, "x").await;
        let seen = read(&*two, &tree, &name).await;
        assert_eq!(seen.is_some(), isolation == Isolation::Global, "{isolation:?}");
    }
}

pub async fn a_tree_that_is_erased_is_gone_and_refuses_who_wrote_before(bench: Bench) {
    let trees = bench.trees();
    let owner = slot(Some("u"), "s");
    let tree = Tree::Session(owner.clone());
    let before = trees.clock(&tree).await.expect("a time");
    for at in ["a", "b/c"] {
        trees.put(&tree, &path(at), &stamped(at, stamp("s", "c", before, at))).await.expect("written");
    }
    let floor = before + 1;
    trees.erase(&tree, floor).await.expect("erased");
    assert_eq!(trees.list(&tree, &Listing::all(9)).await, Ok(Page::default()));
    // A run of the session that was deleted comes too late, even where it had not written yet.
    let late = trees.put(&tree, &path("a"), &stamped("late", stamp("s", "c", before, "late"))).await;
    assert_eq!(late, Err(FileError::Fenced));
    assert_eq!(trees.recall(&tree, &stamp("s", "c", before, "a")).await, Err(FileError::Fenced));
    // Its successor begins with nothing, and may write.
    assert_eq!(trees.recall(&tree, &stamp("s", "c", floor, "a")).await, Ok(None));
    trees.put(&tree, &path("a"), &stamped("new", stamp("s", "c", floor, "a"))).await.expect("written");
    assert_eq!(read(&*trees, &tree, "a").await.as_deref(), Some("new"));
    trees.erase(&tree, 1).await.expect("erased again, by an older request");
    let late = trees.put(&tree, &path("a"), &stamped("late", stamp("s", "c", before, "late"))).await;
    assert_eq!(late, Err(FileError::Fenced), "a floor never sinks");
    trees.erase(&Tree::Session(slot(None, "never used")), 1).await.expect("nothing to erase");
}

/// As a process leaves it that was killed while it removed a session's files.
#[tokio::test]
async fn a_tree_whose_end_was_cut_short_is_ended_again_and_takes_files() {
    for missing in ["files", "meta/writers", "meta/temporary"] {
        let trees = crate::kit::local(Default::default()).trees("ns.agent");
        let tree = Tree::Session(slot(None, "s"));
        write(&*trees, &tree, "a/b", "old").await;
        let sessions = trees.folder().expect("a folder").join("agents/ns.agent/sessions");
        let place =
            std::fs::read_dir(sessions).expect("trees").next().expect("a tree").expect("an entry").path();
        std::fs::remove_dir_all(place.join(missing)).expect("removed");
        trees.erase(&tree, 7).await.expect("the same request again");
        assert_eq!(read(&*trees, &tree, "a/b").await, None);
        std::fs::remove_dir_all(place.join(missing)).expect("removed");
        write(&*trees, &tree, "a/b", "new").await;
        assert_eq!(read(&*trees, &tree, "a/b").await.as_deref(), Some("new"));
    }
}
