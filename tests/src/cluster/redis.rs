//! The store's pods, where a suite takes them away.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::stage::Stage;
use super::{Namespace, eventually};

/// Changes to an Agent that give it a Redis of the operator's making.
pub fn managed() -> Value {
    json!({"stateStore": {"redis": {"url": null, "managed": {"storage": "1Gi"}}}})
}

/// The StatefulSet of a managed Redis.
pub fn managed_name(agent: &str) -> String {
    format!("{agent}-redis")
}

pub fn managed_pod(agent: &str) -> String {
    format!("{}-0", managed_name(agent))
}

pub fn uid(namespace: &Namespace, pod: &str) -> Result<String> {
    namespace.kubectl(&["get", "pod", pod, "-o", "jsonpath={.metadata.uid}"])
}

/// Another pod of that name than before, and ready.
pub fn back(namespace: &Namespace, pod: &str, before: &str, within: Duration) -> Result<()> {
    eventually("the store is back", within, || {
        let found = namespace.kubectl(&["get", "pod", pod, "-o", "json"])?;
        let found: Value = serde_json::from_str(&found)?;
        ensure!(found["metadata"]["uid"] != before, "the old pod is there still");
        ensure!(super::stage::is_ready(&found), "{pod} is not ready: {}", found["status"]["conditions"]);
        Ok(())
    })
}

/// Longer than the 10 s for which a replica bears the absence of its store without a word to its clients.
const AWAY: Duration = Duration::from_secs(14);

/// Gone by then: the pod was told to stop, and has.
pub const SURELY_GONE: Duration = Duration::from_secs(4);

/// No pod for a while, and clients who come meanwhile; then one on the same volume.
pub fn stays_away(stage: &Stage<'_>, stateful_set: &str, within: Duration) -> Result<()> {
    let (namespace, set) = (stage.namespace, format!("statefulset/{stateful_set}"));
    namespace.kubectl(&["scale", &set, "--replicas=0"])?;
    let newcomers = stage.newcomers(SURELY_GONE);
    std::thread::sleep(AWAY);
    namespace.kubectl(&["scale", &set, "--replicas=1"])?;
    let timeout = format!("--timeout={}s", within.as_secs());
    namespace.kubectl(&["rollout", "status", &set, &timeout])?;
    stage.served(newcomers)
}
