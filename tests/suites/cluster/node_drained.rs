//! `kubectl drain` of a node with replicas on it: one eviction at a time, and nobody sees it.

use anyhow::{Context, Result, ensure};
use holdfast_tests::cluster::stage::{self, Stage};
use holdfast_tests::cluster::talk::Talk;
use holdfast_tests::cluster::{Namespace, node};
use serde_json::json;

pub fn run(namespace: &Namespace) -> Result<String> {
    let stage = Stage::set(namespace, &json!({}))?;
    // Not the node with the store: that is another failure, and another suite's.
    let store = namespace.kubectl(&["get", "pod/redis", "-o", "jsonpath={.spec.nodeName}"])?;
    let drained = node::workers()?.into_iter().find(|node| *node != store).context("no other node")?;
    let ran = stage.under_load(Talk { sessions: 20, long: true, leave: true, files: false }, || {
        let there = stage.pod_list()?.iter().filter(|pod| stage::node(pod) == drained).count();
        ensure!(there > 0, "no replica is on {drained}");
        stage.note(&format!("drain {drained}"));
        let closed = node::drain(&drained)?;
        stage.settled(3)?;
        ensure!(
            stage.pod_list()?.iter().all(|pod| stage::node(pod) != drained),
            "a replica is still on {drained}"
        );
        stage.note("uncordon");
        closed.uncordon()
    })?;
    stage.report("node_drained", &ran, |ran| ran.unseen(&stage))
}
