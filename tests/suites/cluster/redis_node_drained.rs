//! The node with the volume of a managed Redis is drained: there is no store until it is uncordoned, and then everything is there.
//! The drain itself does not come to its end: replicas that were moved are not ready without their store, and the disruption
//! budget keeps the others where they are, where they go on as soon as the store is back.

use anyhow::Result;
use holdfast_tests::cluster::stage::{AGENT, Stage};
use holdfast_tests::cluster::talk::Talk;
use holdfast_tests::cluster::{Namespace, budgets, node, redis};

pub fn run(namespace: &Namespace) -> Result<String> {
    let stage = Stage::set_without_store(namespace, &redis::managed())?;
    let pod = redis::managed_pod(AGENT);
    let home = namespace.kubectl(&["get", &format!("pod/{pod}"), "-o", "jsonpath={.spec.nodeName}"])?;
    let ran = stage.under_load(Talk { sessions: 20, long: false, leave: true, files: false }, || {
        let before = redis::uid(namespace, &pod)?;
        stage.note(&format!("drain {home}"));
        let newcomers = stage.newcomers(redis::SURELY_GONE);
        let closed = node::drain_in_part(&home)?;
        stage.note("uncordon");
        closed.uncordon()?;
        redis::back(namespace, &pod, &before, budgets::REDIS_BACK)?;
        stage.served(newcomers)?;
        stage.settled(3)?;
        stage.flows()
    })?;
    stage.report("redis_node_drained", &ran, |ran| ran.recovered())
}
