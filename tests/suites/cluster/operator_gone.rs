//! The operator is away the whole time: replicas are restarted and deleted without it, and nobody sees it.

use anyhow::Result;
use holdfast_tests::cluster::stage::{self, Stage};
use holdfast_tests::cluster::talk::Talk;
use holdfast_tests::cluster::{Namespace, operator};
use serde_json::json;

pub fn run(namespace: &Namespace) -> Result<String> {
    let stage = Stage::set(namespace, &json!({}))?;
    let away = operator::Away::send()?;
    let ran = stage.under_load(Talk { sessions: 20, long: true, leave: true, files: false }, || {
        stage.restart()?;
        stage.note("delete pod");
        namespace.kubectl(&["delete", "pod", "--wait=false", stage::name(&stage.busiest()?)])?;
        stage.settled(3)
    })?;
    away.call_back()?;
    stage.report("operator_gone", &ran, |ran| ran.unseen(&stage))
}
