//! Another image tag in the middle of conversations.

use anyhow::{Result, ensure};
use holdfast_tests::cluster::Namespace;
use holdfast_tests::cluster::images;
use holdfast_tests::cluster::stage::Stage;
use holdfast_tests::cluster::talk::Talk;
use serde_json::json;

pub fn run(namespace: &Namespace) -> Result<String> {
    let other = images::another_tag()?;
    let stage = Stage::set(namespace, &json!({}))?;
    let ran = stage.under_load(Talk { sessions: 20, long: true, leave: true, files: false }, || {
        stage.note("image");
        stage.change(&json!({"image": other}))
    })?;
    stage.report("image_changed", &ran, |ran| {
        ran.unseen(&stage)?;
        for pod in stage.pod_list()? {
            let image = &pod["spec"]["containers"][0]["image"];
            ensure!(*image == other, "a pod still has the image {image}");
        }
        Ok(())
    })
}
