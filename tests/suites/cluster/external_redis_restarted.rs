//! A Redis that is somebody else's is restarted, with its data on a volume: first as `kubectl rollout restart` does, which takes
//! a few seconds and which no call notices; then with a longer pause, which cuts clients off.

use anyhow::Result;
use holdfast_tests::cluster::stage::Stage;
use holdfast_tests::cluster::talk::Talk;
use holdfast_tests::cluster::{Namespace, budgets, redis};
use serde_json::json;

const REDIS: &str = include_str!("external_redis_restarted/redis.yaml");

pub fn run(namespace: &Namespace) -> Result<String> {
    namespace.apply(REDIS)?;
    let rolled_out = ["rollout", "status", "statefulset/redis", "--timeout=120s"];
    namespace.kubectl(&rolled_out)?;
    let stage = Stage::set_without_store(namespace, &json!({}))?;
    let ran = stage.under_load(Talk { sessions: 20, long: false, leave: true, files: false }, || {
        let before = redis::uid(namespace, "redis-0")?;
        stage.note("restart Redis");
        namespace.kubectl(&["rollout", "restart", "statefulset/redis"])?;
        redis::back(namespace, "redis-0", &before, budgets::REDIS_BACK)?;
        stage.flows()?;
        stage.note("stop and start it");
        redis::stays_away(&stage, "redis", budgets::REDIS_BACK)?;
        stage.flows()
    })?;
    stage.report("external_redis_restarted", &ran, |ran| ran.recovered())
}
