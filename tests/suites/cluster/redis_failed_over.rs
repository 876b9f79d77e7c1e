//! What is not promised, measured: a failover to a replica of Redis that lagged behind. Redis replicates after it has answered, so
//! that what was acknowledged in the time of the lag is gone with the primary, whatever the settings. Sessions go on from what
//! the new primary has, and calls that are sent again are run again.

use std::time::Duration;

use anyhow::{Result, ensure};
use holdfast_tests::checker::{LOST, NOT_KEPT, UNSAFE_TWICE};
use holdfast_tests::cluster::stage::{REDIS, Stage};
use holdfast_tests::cluster::talk::Talk;
use holdfast_tests::cluster::{Namespace, budgets, eventually, node};
use serde_json::json;

/// How far the replica is behind when its primary dies.
const LAG: Duration = Duration::from_secs(2);
const REPLICA: &str = "redis-replica";

pub fn run(namespace: &Namespace) -> Result<String> {
    namespace.apply(REDIS)?;
    namespace.wait("pod/redis", "condition=Ready", budgets::POD_READY)?;
    let replica = REDIS
        .split("---")
        .next()
        .unwrap_or_default()
        .replace(
            "name: redis\n  labels: { app: redis }",
            &format!("name: {REPLICA}\n  labels: {{ app: {REPLICA} }}"),
        )
        .replace("\"--dir\"", "\"--replicaof\", \"redis\", \"6379\", \"--dir\"");
    namespace.apply(&replica)?;
    namespace.wait(&format!("pod/{REPLICA}"), "condition=Ready", budgets::POD_READY)?;
    eventually("the replica follows", budgets::POD_READY, || {
        let state = redis(namespace, &["info", "replication"])?;
        ensure!(state.contains("role:slave") && state.contains("master_link_status:up"), "{state}");
        Ok(())
    })?;
    let stage = Stage::set_without_store(namespace, &json!({}))?;
    let ran = stage.under_load(Talk { sessions: 20, long: false, leave: false, files: false }, || {
        // From here on it receives nothing: the same as a link that lags so far.
        redis(namespace, &["replicaof", "no", "one"])?;
        std::thread::sleep(LAG);
        let primary = serde_json::from_str(&namespace.kubectl(&["get", "pod/redis", "-o", "json"])?)?;
        stage.note("failover");
        let follow = json!({"spec": {"selector": {"app": REPLICA}}}).to_string();
        namespace.kubectl(&["patch", "service/redis", "-p", &follow])?;
        node::kill(&primary, "redis")?;
        stage.flows()
    })?;
    let lost = |promise| ran.summary.verdict.broken(promise);
    let row = format!(
        "  with a lag of {LAG:?}: {} of {} answered calls gone, {} of {} unsafe tool calls run twice\n",
        lost(NOT_KEPT).max(lost(LOST)),
        ran.summary.verdict.of(NOT_KEPT),
        lost(UNSAFE_TWICE),
        ran.summary.verdict.of(UNSAFE_TWICE),
    );
    let report = stage.report("redis_failed_over", &ran, |ran| {
        ensure!(ran.summary.verdict.broken(NOT_KEPT) > 0, "nothing was lost: the replica did not lag");
        Ok(())
    })?;
    Ok(format!("{report}{row}"))
}

/// What the replica says.
fn redis(namespace: &Namespace, command: &[&str]) -> Result<String> {
    namespace.kubectl(&[&["exec", REPLICA, "--", "redis-cli"], command].concat())
}
