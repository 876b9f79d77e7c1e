//! How long a tree is kept.

use std::time::Duration;

use holdfast_sidecar::workspace::TreeLimits;

use crate::kit::{Bench, path, read, stamp, stamped, until, user, write};

pub async fn a_tree_nobody_uses_is_gone_and_one_in_use_stays(bench: Bench) {
    let ttl = Duration::from_millis(1500);
    let trees = (bench.open)(TreeLimits { ttl, ..TreeLimits::default() }).trees("test.agent");
    let (left, used) = (user("left"), user("used"));
    trees.put(&left, &path("a/b"), &stamped("x", stamp("s", "c", 1, "op"))).await.expect("written");
    write(&*trees, &used, "a", "x").await;
    // The one is only asked after much later than its time; asking after it would keep it.
    let began = std::time::Instant::now();
    until("the time of the one to pass", async || {
        assert!(read(&*trees, &used, "a").await.is_some(), "a tree in use is gone");
        began.elapsed() > ttl * 2
    })
    .await;
    assert_eq!(read(&*trees, &left, "a/b").await, None, "a tree nobody used is still there");
    // Whoever comes after begins anew.
    write(&*trees, &left, "a", "a file where a folder was").await;
}
