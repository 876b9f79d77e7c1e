//! What a Redis user must be allowed.

use std::sync::Arc;

use holdfast_sidecar::store::redis::{RedisConfig, Standalone, commands as of_sessions};
use holdfast_sidecar::workspace::remote::{Remote, commands};
use holdfast_sidecar::workspace::{Condition, Listing, Tree, TreeLimits, Trees};
use holdfast_tests::redis::Options;

use crate::kit::{path, read, slot, stamp, stamped, user, write};

const PREFIX: &str = "ns.agent";

/// The rules as a user copies them from the documentation.
fn documented(page: &str) -> Vec<String> {
    let rules = page.split("```acl\n").nth(1).expect("the ACL rules").split("```").next().expect("an end");
    rules.split_whitespace().map(|rule| rule.replace("<prefix>", PREFIX)).collect()
}

#[tokio::test]
async fn a_user_with_just_the_documented_rules_can_do_everything() {
    let server = Options::default().volatile().start().expect("a redis-server");
    let mut rules = documented(include_str!("../../../docs/store-redis.md"));
    rules.extend(documented(include_str!("../../../docs/workspace.md")));
    for command in commands().union(&of_sessions()) {
        assert!(rules.contains(&format!("+{command}")), "{command} is used and not documented");
    }
    let client = redis::Client::open(server.url()).expect("a client");
    let mut connection = client.get_connection().expect("a connection");
    let mut set = redis::cmd("ACL");
    set.arg("SETUSER").arg("agent").arg("on").arg(">secret").arg(&rules);
    set.exec(&mut connection).expect("the rules are rules");

    let url = server.url().replace("redis://", "redis://agent:secret@");
    let open = |prefix: &str| {
        let link = Standalone::new(RedisConfig::new(&url)).expect("a URL");
        Remote::over(Arc::new(link), prefix, TreeLimits::default()).expect("a prefix")
    };
    let trees = open(PREFIX);
    for tree in [user("u"), Tree::Agent, Tree::Global, Tree::Session(slot(None, "s"))] {
        trees.put(&tree, &path("a/b"), &stamped("x", stamp("s", "c", 1, "op"))).await.expect("put");
        trees.recall(&tree, &stamp("s", "c", 1, "op")).await.expect("recall");
        write(&trees, &tree, "c", "x").await;
        assert_eq!(read(&trees, &tree, "a/b").await.as_deref(), Some("x"));
        trees.texts(&tree, &["c".into()], 9).await.expect("texts");
        trees.list(&tree, &Listing { folders: true, ..Listing::all(9) }).await.expect("list");
        trees.delete(&tree, &path("c"), &Condition::Any).await.expect("delete");
        trees.touch(&tree).await.expect("touch");
        let now = trees.clock(&tree).await.expect("clock");
        trees.erase(&tree, now).await.expect("erase");
    }
    let denied = open("another.agent").list(&user("u"), &Listing::all(9)).await;
    assert!(denied.is_err(), "another agent's files: {denied:?}");
}
