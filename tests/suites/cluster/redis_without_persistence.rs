//! What is not promised: a Redis that keeps nothing on disk is killed. The Agent has said before what that would lose, and the
//! suite counts it: what was answered is gone, and what was done may be done again, because nobody remembers it.

use anyhow::{Result, ensure};
use holdfast_tests::checker::{LOST, NOT_KEPT};
use holdfast_tests::cluster::stage::{AGENT, REDIS, Stage};
use holdfast_tests::cluster::talk::Talk;
use holdfast_tests::cluster::{Namespace, budgets, eventually, node};
use serde_json::{Value, json};

pub fn run(namespace: &Namespace) -> Result<String> {
    let volatile = REDIS.replace("\"--appendonly\", \"yes\"", "\"--appendonly\", \"no\", \"--save\", \"\"");
    ensure!(volatile != REDIS, "the Redis of the other suites has changed");
    namespace.apply(&volatile)?;
    namespace.wait("pod/redis", "condition=Ready", budgets::POD_READY)?;
    // By its whole name, so that the operator finds it too.
    let url = format!("redis://redis.{}.svc:6379/0", namespace.name());
    let stage = Stage::set_without_store(namespace, &json!({"stateStore": {"redis": {"url": url}}}))?;
    let warned = eventually("the Agent says what its store would lose", budgets::AGENT_READY, || {
        let path = "jsonpath={.status.conditions[?(@.type==\"StateStoreDurable\")]}";
        let condition = namespace.kubectl(&["get", &format!("agent/{AGENT}"), "-o", path])?;
        let condition: Value = serde_json::from_str(&condition)?;
        ensure!(condition["status"] == "False" && condition["reason"] == "MemoryOnly", "{condition}");
        Ok(condition["message"].as_str().unwrap_or_default().to_owned())
    })?;
    let ran = stage.under_load(Talk { sessions: 20, long: false, leave: false, files: false }, || {
        let pod = serde_json::from_str(&namespace.kubectl(&["get", "pod/redis", "-o", "json"])?)?;
        stage.note("kill -9 Redis");
        node::kill(&pod, "redis")?;
        stage.flows()
    })?;
    stage
        .report("redis_without_persistence", &ran, |ran| {
            let count = |promise| ran.summary.verdict.0.get(promise).map_or(0, |count| count.broken);
            ensure!(count(LOST) > 0 && count(NOT_KEPT) > 0, "nothing was lost: this Redis kept what it had");
            Ok(())
        })
        .map(|report| format!("{report}  the Agent had said: {warned}\n"))
}
