//! Who may write, and each tool call once.

use holdfast_sidecar::workspace::{Condition, Done, FileError, Part, Put};

use crate::kit::{Bench, path, put, read, stamp, stamped, user, write};

pub async fn a_lower_fence_of_a_session_is_refused(bench: Bench) {
    let trees = bench.trees();
    let tree = user("u");
    trees.put(&tree, &path("a"), &stamped("new", stamp("s", "c", 20, "op-1"))).await.expect("written");
    let late = trees.put(&tree, &path("a"), &stamped("old", stamp("s", "c", 19, "op-2"))).await;
    assert_eq!(late, Err(FileError::Fenced));
    assert_eq!(trees.recall(&tree, &stamp("s", "c", 19, "op-1")).await, Err(FileError::Fenced));
    assert_eq!(read(&*trees, &tree, "a").await.as_deref(), Some("new"));
    trees
        .put(&tree, &path("a"), &stamped("same", stamp("s", "c", 20, "op-3")))
        .await
        .expect("the same fence");
    trees.put(&tree, &path("a"), &stamped("later", stamp("s", "c", 21, "op-4"))).await.expect("a higher one");
    // Whoever only asks has been seen too.
    assert_eq!(trees.recall(&tree, &stamp("s", "d", 30, "op-5")).await, Ok(None));
    let late = trees.put(&tree, &path("a"), &stamped("old", stamp("s", "d", 29, "op-6"))).await;
    assert_eq!(late, Err(FileError::Fenced));
    // A client has no fence, and is refused by none.
    write(&*trees, &tree, "a", "a client's").await;
}

pub async fn fences_of_two_sessions_do_not_meet(bench: Bench) {
    let trees = bench.trees();
    let tree = user("u");
    trees.put(&tree, &path("a"), &stamped("one", stamp("s1", "c", 20, "op-1"))).await.expect("written");
    trees
        .put(&tree, &path("a"), &stamped("two", stamp("s2", "c", 3, "op-1")))
        .await
        .expect("another session");
    assert_eq!(read(&*trees, &tree, "a").await.as_deref(), Some("two"));
    // And no tree knows of another.
    trees
        .put(&user("v"), &path("a"), &stamped("v", stamp("s1", "c", 1, "op-1")))
        .await
        .expect("another tree");
}

pub async fn the_same_tool_call_again_is_answered_from_the_record(bench: Bench) {
    let trees = bench.trees();
    let tree = user("u");
    let first = stamped("one", stamp("s", "c", 5, "op-1"));
    assert!(matches!(trees.put(&tree, &path("a"), &first).await, Ok(Done::Written { created: true, .. })));
    assert_eq!(trees.recall(&tree, &stamp("s", "c", 5, "op-1")).await, Ok(Some("wrote one".into())));
    write(&*trees, &tree, "a", "changed meanwhile").await;
    // By another replica, with a higher fence, and whatever has become of the file.
    let again = Put { condition: Condition::Absent, ..stamped("one", stamp("s", "c", 6, "op-1")) };
    assert_eq!(trees.put(&tree, &path("a"), &again).await, Ok(Done::Recorded("wrote one".into())));
    assert_eq!(trees.recall(&tree, &stamp("s", "c", 6, "op-1")).await, Ok(Some("wrote one".into())));
    assert_eq!(read(&*trees, &tree, "a").await.as_deref(), Some("changed meanwhile"));
    // What was refused is not recorded: nothing was done.
    let refused = Put { condition: Condition::Absent, ..stamped("two", stamp("s", "c", 6, "op-2")) };
    assert!(matches!(trees.put(&tree, &path("a"), &refused).await, Err(FileError::Changed { .. })));
    assert_eq!(trees.recall(&tree, &stamp("s", "c", 6, "op-2")).await, Ok(None));
}

pub async fn a_record_lasts_for_its_call(bench: Bench) {
    let trees = bench.trees();
    let tree = user("u");
    for op in ["op-1", "op-2"] {
        trees.put(&tree, &path(op), &stamped(op, stamp("s", "c1", 5, op))).await.expect("written");
    }
    for op in ["op-1", "op-2"] {
        assert_eq!(trees.recall(&tree, &stamp("s", "c1", 5, op)).await, Ok(Some(format!("wrote {op}"))));
    }
    // The next call of the session begins only when this one has ended.
    trees.put(&tree, &path("b"), &stamped("b", stamp("s", "c2", 5, "op-3"))).await.expect("written");
    assert_eq!(trees.recall(&tree, &stamp("s", "c2", 5, "op-1")).await, Ok(None));
    assert_eq!(trees.recall(&tree, &stamp("s", "c2", 5, "op-3")).await, Ok(Some("wrote b".into())));
}

/// As `edit_file` does it: read, then write only if it is still the same.
pub async fn of_many_who_edit_at_once_one_wins_each_time(bench: Bench) {
    let place = (bench.open)(Default::default());
    let (one, two) = (place.trees("test.agent"), place.trees("test.agent"));
    let tree = user("u");
    write(&*one, &tree, "a", "").await;
    let tasks = (0..6).map(|n| {
        let (trees, tree) = (if n % 2 == 0 { one.shared() } else { two.shared() }, tree.clone());
        tokio::spawn(async move {
            let (mut won, mut lost) = (0, 0);
            while won < 5 {
                let before = trees.read(&tree, &path("a"), Part::WHOLE).await.expect("read").expect("there");
                let after = [&before.bytes[..], format!("{n}\n").as_bytes()].concat();
                let edit = Put { condition: Condition::Is(before.about.etag), ..put(after) };
                match trees.put(&tree, &path("a"), &edit).await {
                    Ok(_) => won += 1,
                    Err(FileError::Changed { .. }) => lost += 1,
                    Err(error) => panic!("{error}"),
                }
            }
            lost
        })
    });
    let mut lost = 0;
    for task in tasks.collect::<Vec<_>>() {
        lost += task.await.expect("no panic");
    }
    let text = read(&*two, &tree, "a").await.expect("there");
    for n in 0..6 {
        assert_eq!(
            text.lines().filter(|line| *line == n.to_string()).count(),
            5,
            "of {n}; {lost} edits lost their race"
        );
    }
}
