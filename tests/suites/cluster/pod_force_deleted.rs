//! `kubectl delete pod --force`, twice: no drain, no goodbye.

use anyhow::{Result, ensure};
use holdfast_tests::cluster::Namespace;
use holdfast_tests::cluster::stage::{self, Stage};
use holdfast_tests::cluster::talk::Talk;
use serde_json::json;

pub fn run(namespace: &Namespace) -> Result<String> {
    let stage = Stage::set(namespace, &json!({}))?;
    let ran = stage.under_load(Talk { sessions: 24, long: true, leave: true, files: false }, || {
        for _ in 0..2 {
            let pod = stage.busiest()?;
            stage.note("delete --force");
            namespace.kubectl(&["delete", "pod", stage::name(&pod), "--force", "--grace-period=0"])?;
            stage.settled(3)?;
        }
        Ok(())
    })?;
    stage.report("pod_force_deleted", &ran, |ran| {
        ran.recovered()?;
        ensure!(ran.summary.resumed > 0, "no call was taken over");
        Ok(())
    })
}
