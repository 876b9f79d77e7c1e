//! What there is.

use holdfast_sidecar::workspace::{Entry, Etag, Listed, Listing, Page, Tree};

use crate::kit::{Bench, Opened, path, put, user, write};

const NAMES: [&str; 9] = ["a", "a-b", "a.txt", "a/b", "a/b.c", "a/c/d", "a/c-d", "a0", "ü"];

async fn filled(bench: &Bench) -> (Opened, Tree) {
    let (trees, tree) = (bench.trees(), user("u"));
    // "a" would be a file and a folder.
    for name in NAMES.iter().skip(1) {
        write(&*trees, &tree, name, name).await;
    }
    (trees, tree)
}

fn paths(page: &Page) -> Vec<&str> {
    page.entries.iter().map(|entry| entry.path.as_str()).collect()
}

fn sorted() -> Vec<&'static str> {
    let mut names = NAMES[1..].to_vec();
    names.sort_unstable();
    names
}

pub async fn paths_come_in_the_order_of_their_bytes(bench: Bench) {
    let (trees, tree) = filled(&bench).await;
    let page = trees.list(&tree, &Listing { etags: true, ..Listing::all(100) }).await.expect("a page");
    assert_eq!((paths(&page), &page.next), (sorted(), &None));
    for Entry { path, what } in page.entries {
        let Listed::File { size, modified, etag } = what else { panic!("{path} is a folder") };
        assert_eq!((size, etag), (path.len() as u64, Some(Etag::of(path.as_bytes()))));
        assert!(modified > 1_600_000_000_000, "{modified}");
    }
    assert_eq!(trees.list(&user("nobody"), &Listing::all(9)).await, Ok(Page::default()));
}

pub async fn a_listing_comes_in_pages_that_join(bench: Bench) {
    let (trees, tree) = filled(&bench).await;
    for limit in 1..=9 {
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let page = trees.list(&tree, &Listing { after, ..Listing::all(limit) }).await.expect("a page");
            assert!(page.entries.len() <= limit);
            all.extend(page.entries.iter().map(|entry| entry.path.clone()));
            after = page.next.clone();
            if after.is_none() {
                break;
            }
        }
        assert_eq!(all, sorted(), "in pages of {limit}");
    }
}

pub async fn a_folder_is_listed_by_itself(bench: Bench) {
    let (trees, tree) = filled(&bench).await;
    let below = |folder: &str| Listing { below: Some(path(folder)), ..Listing::all(100) };
    let page = trees.list(&tree, &below("a")).await.expect("a page");
    assert_eq!(paths(&page), ["a/b", "a/b.c", "a/c-d", "a/c/d"]);
    let page =
        trees.list(&tree, &Listing { after: Some("a/b.c".into()), ..below("a") }).await.expect("a page");
    assert_eq!(paths(&page), ["a/c-d", "a/c/d"]);
    for nothing in ["none", "a/b", "a/c/d/e"] {
        assert_eq!(trees.list(&tree, &below(nothing)).await.expect("a page"), Page::default(), "{nothing}");
    }
}

pub async fn folders_are_one_entry_each(bench: Bench) {
    let (trees, tree) = filled(&bench).await;
    let folders = |below: Option<&str>, limit, after: Option<&str>| Listing {
        below: below.map(path),
        folders: true,
        after: after.map(str::to_owned),
        ..Listing::all(limit)
    };
    let page = trees.list(&tree, &folders(None, 100, None)).await.expect("a page");
    assert_eq!((paths(&page), &page.next), (vec!["a-b", "a.txt", "a/", "a0", "ü"], &None));
    assert_eq!(page.entries[2].what, Listed::Folder);
    let page = trees.list(&tree, &folders(Some("a"), 100, None)).await.expect("a page");
    assert_eq!(paths(&page), ["a/b", "a/b.c", "a/c-d", "a/c/"]);
    let page = trees.list(&tree, &folders(None, 3, None)).await.expect("a page");
    assert_eq!((paths(&page), page.next.as_deref()), (vec!["a-b", "a.txt", "a/"], Some("a/")));
    let page = trees.list(&tree, &folders(None, 3, Some("a/"))).await.expect("a page");
    assert_eq!((paths(&page), &page.next), (vec!["a0", "ü"], &None));
}

pub async fn ten_thousand_files_come_in_pages(bench: Bench) {
    let (trees, tree) = (bench.trees(), user("u"));
    write(&*trees, &tree, "first", "").await;
    let names: Vec<String> = (1..10_000).map(|n| format!("d{}/f{n:05}", n % 7)).collect();
    match trees.folder() {
        // As a person would put them there: nobody waits for ten thousand syncs.
        Some(folder) => fill(&files_in(folder), &names),
        None => {
            let tasks = names.chunks(500).map(|names| {
                let (trees, tree, names) = (trees.shared(), tree.clone(), names.to_vec());
                tokio::spawn(async move {
                    for name in names {
                        trees.put(&tree, &path(&name), &put("x")).await.expect("written");
                    }
                })
            });
            for task in tasks.collect::<Vec<_>>() {
                task.await.expect("written");
            }
        }
    }
    let (mut all, mut after, mut pages) = (Vec::new(), None, 0);
    loop {
        let listing = Listing { after, etags: true, ..Listing::all(1000) };
        let page = trees.list(&tree, &listing).await.expect("a page");
        all.extend(page.entries.into_iter().map(|entry| entry.path));
        pages += 1;
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!((pages, all.len()), (10, 10_000));
    assert!(all.is_sorted());
}

/// The one tree in a folder.
fn files_in(folder: &std::path::Path) -> std::path::PathBuf {
    let users = folder.join("agents/test.agent/users");
    let tree = std::fs::read_dir(users).expect("users").next().expect("a tree").expect("a tree");
    tree.path().join("files")
}

fn fill(files: &std::path::Path, names: &[String]) {
    for name in names {
        let file = files.join(name);
        std::fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
        std::fs::write(file, "x").expect("a file");
    }
}
