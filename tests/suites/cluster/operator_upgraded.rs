//! `helm upgrade` to an operator that brings another sidecar: first the operators are replaced, then, by them, the replicas.

use anyhow::{Result, ensure};
use holdfast_tests::cluster::stage::Stage;
use holdfast_tests::cluster::talk::Talk;
use holdfast_tests::cluster::{Namespace, budgets, eventually, images, operator};
use serde_json::json;

pub fn run(namespace: &Namespace) -> Result<String> {
    let other = images::another_tag()?;
    let stage = Stage::set(namespace, &json!({}))?;
    let ran = stage.under_load(Talk { sessions: 20, long: true, leave: true, files: false }, || {
        for image in [other, images::PRESENT] {
            stage.note("helm upgrade");
            operator::upgrade(image)?;
            eventually("replicas with the new operator's image", budgets::ROLLED_OUT, || {
                for pod in stage.pod_list()? {
                    let found = &pod["spec"]["containers"][0]["image"];
                    ensure!(*found == image, "{found}");
                }
                Ok(())
            })?;
            stage.settled(3)?;
        }
        Ok(())
    })?;
    stage.report("operator_upgraded", &ran, |ran| ran.unseen(&stage))
}
