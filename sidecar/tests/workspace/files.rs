//! One file at a time.

use holdfast_sidecar::workspace::{Condition, Done, Etag, FileError, Part, Put, Text, TreeLimits};

use crate::kit::{Bench, path, put, read, user, write};

pub async fn a_file_comes_back_as_it_was_written(bench: Bench) {
    let trees = bench.trees();
    let tree = user("u");
    let large = vec![7_u8; 1 << 20];
    let contents: [(&str, &[u8]); 5] = [
        ("a.txt", b"one\ntwo\n"),
        ("empty", b""),
        ("b/c/d.bin", b"\0\xff\r\n"),
        ("ü 😀.md", "größer".as_bytes()),
        ("l", &large),
    ];
    for (at, content) in contents {
        let written = trees.put(&tree, &path(at), &put(content)).await.expect(at);
        let Done::Written { about, created } = written else { panic!("{written:?}") };
        assert!(created, "{at}");
        let found = trees.read(&tree, &path(at), Part::WHOLE).await.expect(at).expect(at);
        assert_eq!(found.bytes, content, "{at}");
        assert_eq!(found.about, about, "{at}: what is told when it is written and when it is read");
        assert_eq!((about.size, about.etag), (content.len() as u64, Etag::of(content)));
        assert_eq!(about.binary, at == "b/c/d.bin", "{at}");
    }
    let again = trees.put(&tree, &path("a.txt"), &put("three")).await.expect("written");
    assert!(matches!(again, Done::Written { created: false, .. }));
    assert_eq!(read(&*trees, &tree, "a.txt").await.as_deref(), Some("three"));
}

pub async fn a_part_of_a_file_is_that_part(bench: Bench) {
    let trees = bench.trees();
    let tree = user("u");
    write(&*trees, &tree, "a", "0123456789").await;
    for (from, len, part) in
        [(0, 3, "012"), (3, 100, "3456789"), (9, 1, "9"), (10, 1, ""), (99, 1, ""), (0, 0, "")]
    {
        let found = trees.read(&tree, &path("a"), Part { from, len }).await.expect("read").expect("there");
        assert_eq!(found.bytes, part, "{len} from {from}");
        assert_eq!((found.about.size, found.about.etag), (10, Etag::of(b"0123456789")));
    }
}

pub async fn what_is_not_there_is_told_apart_from_what_is(bench: Bench) {
    let trees = bench.trees();
    let tree = user("u");
    assert_eq!(read(&*trees, &tree, "a").await, None, "no tree yet");
    assert_eq!(trees.delete(&tree, &path("a"), &Condition::Any).await, Ok(false));
    write(&*trees, &tree, "a", "x").await;
    assert_eq!(read(&*trees, &tree, "b").await, None);
    assert_eq!(read(&*trees, &tree, "a/b").await, None, "nothing is in a file");
    assert_eq!(trees.delete(&tree, &path("a"), &Condition::Any).await, Ok(true));
    assert_eq!(read(&*trees, &tree, "a").await, None);
    assert_eq!(trees.delete(&tree, &path("a"), &Condition::Any).await, Ok(false));
}

pub async fn a_path_is_a_file_or_a_folder(bench: Bench) {
    let trees = bench.trees();
    let tree = user("u");
    write(&*trees, &tree, "a/b/c", "x").await;
    for folder in ["a", "a/b"] {
        let is_folder = Err(FileError::IsFolder(path(folder)));
        assert_eq!(trees.put(&tree, &path(folder), &put("y")).await, is_folder);
        assert_eq!(
            trees.read(&tree, &path(folder), Part::WHOLE).await,
            Err(FileError::IsFolder(path(folder)))
        );
        assert_eq!(
            trees.delete(&tree, &path(folder), &Condition::Any).await,
            Err(FileError::IsFolder(path(folder)))
        );
    }
    for below in ["a/b/c/d", "a/b/c/d/e"] {
        let refused = trees.put(&tree, &path(below), &put("y")).await;
        assert_eq!(refused, Err(FileError::NotAFolder { path: path(below), file: "a/b/c".into() }));
    }
    // A folder goes with the last file in it, and its name is free.
    assert_eq!(trees.delete(&tree, &path("a/b/c"), &Condition::Any).await, Ok(true));
    write(&*trees, &tree, "a", "a file now").await;
    assert_eq!(read(&*trees, &tree, "a").await.as_deref(), Some("a file now"));
    // What only begins alike is something else.
    write(&*trees, &tree, "n", "1").await;
    write(&*trees, &tree, "n.x", "2").await;
    write(&*trees, &tree, "n-x/y", "3").await;
}

pub async fn a_condition_is_checked_with_the_write(bench: Bench) {
    let trees = bench.trees();
    let tree = user("u");
    let conditional = |content: &str, condition: Condition| Put { condition, ..put(content) };
    let changed = |now: Option<Etag>| FileError::Changed { path: path("a"), now };
    let (one, two) = (Etag::of(b"one"), Etag::of(b"two"));
    for condition in [Condition::Exists, Condition::Is(one.clone())] {
        let refused = trees.put(&tree, &path("a"), &conditional("x", condition.clone())).await;
        assert_eq!(refused, Err(changed(None)));
        assert_eq!(trees.delete(&tree, &path("a"), &condition).await, Err(changed(None)));
    }
    assert!(trees.put(&tree, &path("a"), &conditional("one", Condition::Absent)).await.is_ok());
    for condition in [Condition::Absent, Condition::Is(two.clone())] {
        let refused = trees.put(&tree, &path("a"), &conditional("x", condition.clone())).await;
        assert_eq!(refused, Err(changed(Some(one.clone()))));
        assert_eq!(trees.delete(&tree, &path("a"), &condition).await, Err(changed(Some(one.clone()))));
    }
    assert_eq!(read(&*trees, &tree, "a").await.as_deref(), Some("one"), "nothing was changed");
    assert!(trees.put(&tree, &path("a"), &conditional("two", Condition::Is(one))).await.is_ok());
    assert!(trees.put(&tree, &path("a"), &conditional("two", Condition::Exists)).await.is_ok());
    assert_eq!(trees.delete(&tree, &path("a"), &Condition::Is(two)).await, Ok(true));
}

pub async fn a_file_may_be_so_large_and_a_tree_hold_so_much(bench: Bench) {
    let limits = TreeLimits { max_file: 10, max_tree: 25, ..TreeLimits::default() };
    let trees = (bench.open)(limits).trees("test.agent");
    let tree = user("u");
    let refused = trees.put(&tree, &path("a"), &put("12345678901")).await;
    assert_eq!(refused, Err(FileError::TooLarge { size: 11, limit: 10 }));
    write(&*trees, &tree, "a", "1234567890").await;
    write(&*trees, &tree, "b", "1234567890").await;
    write(&*trees, &tree, "c", "12345").await;
    let full = Err(FileError::TreeFull { after: 26, limit: 25 });
    assert_eq!(trees.put(&tree, &path("d"), &put("1")).await, full);
    assert_eq!(trees.put(&tree, &path("c"), &put("123456")).await, full);
    assert_eq!(read(&*trees, &tree, "c").await.as_deref(), Some("12345"));
    // Another's tree has its own room; what is removed or shortened makes some.
    write(&*trees, &user("v"), "a", "1234567890").await;
    write(&*trees, &tree, "b", "1").await;
    write(&*trees, &tree, "d", "123456789").await;
    assert_eq!(trees.delete(&tree, &path("a"), &Condition::Any).await, Ok(true));
    write(&*trees, &tree, "a", "1234567890").await;
    assert_eq!(
        trees.put(&tree, &path("e"), &put("1")).await,
        Err(FileError::TreeFull { after: 26, limit: 25 })
    );
}

pub async fn a_tree_has_so_many_files(bench: Bench) {
    let trees = (bench.open)(TreeLimits { max_files: 2, ..TreeLimits::default() }).trees("test.agent");
    let tree = user("u");
    write(&*trees, &tree, "a", "").await;
    write(&*trees, &tree, "b/c", "").await;
    assert_eq!(trees.put(&tree, &path("d"), &put("")).await, Err(FileError::TooManyFiles { limit: 2 }));
    write(&*trees, &tree, "a", "again").await;
    assert_eq!(trees.delete(&tree, &path("a"), &Condition::Any).await, Ok(true));
    write(&*trees, &tree, "d", "").await;
}

pub async fn texts_come_by_the_budget(bench: Bench) {
    let trees = bench.trees();
    let tree = user("u");
    write(&*trees, &tree, "a", "12345").await;
    write(&*trees, &tree, "b", b"\0").await;
    write(&*trees, &tree, "c", "12345").await;
    let paths: Vec<String> = ["a", "b", "none", "c"].map(str::to_owned).to_vec();
    let lines = |text: &'static str| Text::Lines(text.into());
    let all = trees.texts(&tree, &paths, 100).await.expect("texts");
    assert_eq!(all, [lines("12345"), Text::Binary, Text::Gone, lines("12345")]);
    assert_eq!(trees.texts(&tree, &paths, 5).await.expect("texts"), [lines("12345")]);
    assert_eq!(trees.texts(&tree, &paths[2..], 1).await.expect("texts"), [Text::Gone, lines("12345")]);
}
