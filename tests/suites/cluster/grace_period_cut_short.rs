//! A grace period shorter than the manifest's, as some clouds and some hands give: `kubectl delete pod --grace-period=2` ends
//! in a SIGKILL before the drain is over. No drain is promised then; the journal holds.

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
            stage.note("2 s to stop");
            namespace.kubectl(&["delete", "pod", stage::name(&pod), "--grace-period=2", "--wait=false"])?;
            stage.gone(stage::name(&pod))?;
            stage.settled(3)?;
        }
        Ok(())
    })?;
    stage.report("grace_period_cut_short", &ran, |ran| {
        ran.recovered()?;
        ensure!(ran.summary.resumed > 0, "no call was taken over");
        Ok(())
    })
}
