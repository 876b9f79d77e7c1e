//! `kill -9` for the agent's process, from its node, twice: the kubelet starts it again, and its calls have long been taken over.

use anyhow::{Result, ensure};
use holdfast_tests::cluster::stage::{self, Stage};
use holdfast_tests::cluster::talk::Talk;
use holdfast_tests::cluster::{Namespace, budgets, eventually, node};
use serde_json::json;

pub fn run(namespace: &Namespace) -> Result<String> {
    let stage = Stage::set(namespace, &json!({}))?;
    let ran = stage.under_load(Talk { sessions: 24, long: true, leave: true, files: false }, || {
        for _ in 0..2 {
            let pod = stage.busiest()?;
            let restarts = stage::restarts(&pod);
            stage.note("kill -9");
            node::kill(&pod, "agent")?;
            eventually("restartCount rises", budgets::DEATH_SEEN, || {
                let pod = stage.pod(stage::name(&pod))?;
                ensure!(stage::restarts(&pod) > restarts, "restartCount is {}", stage::restarts(&pod));
                Ok(())
            })?;
            stage.settled(3)?;
        }
        Ok(())
    })?;
    stage.report("sidecar_killed", &ran, |ran| {
        ran.recovered()?;
        ensure!(ran.summary.resumed > 0, "no call was taken over");
        Ok(())
    })
}
