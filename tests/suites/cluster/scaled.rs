//! `kubectl scale` from three replicas to one and on to four, in the middle of conversations.

use anyhow::{Result, ensure};
use holdfast_tests::cluster::Namespace;
use holdfast_tests::cluster::stage::{AGENT, Stage};
use holdfast_tests::cluster::talk::Talk;
use serde_json::json;

pub fn run(namespace: &Namespace) -> Result<String> {
    let stage = Stage::set(namespace, &json!({}))?;
    let talk = Talk { sessions: 20, long: true, leave: true, files: false };
    let ran = stage.under_load(talk, || {
        stage.until_handed_over(1, || {
            for replicas in [1, 4] {
                stage.note(&format!("scale to {replicas}"));
                namespace.kubectl(&[
                    "scale",
                    &format!("agent/{AGENT}"),
                    &format!("--replicas={replicas}"),
                ])?;
                stage.settled(replicas)?;
            }
            Ok(())
        })
    })?;
    stage.report("scaled", &ran, |ran| {
        ran.unseen(&stage)?;
        ensure!(ran.summary.resumed > 0, "no call was handed over");
        Ok(())
    })
}
