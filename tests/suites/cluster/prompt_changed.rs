//! Another system prompt in the middle of conversations: the pods are rolled, nobody sees it, and what comes after is asked with
//! the new prompt.

use anyhow::{Result, ensure};
use holdfast_tests::cluster::Namespace;
use holdfast_tests::cluster::stage::Stage;
use holdfast_tests::cluster::talk::Talk;
use serde_json::json;

const NEW: &str = "You help customers, in few words.";

pub fn run(namespace: &Namespace) -> Result<String> {
    let stage = Stage::set(namespace, &json!({}))?;
    let ran = stage.under_load(Talk { sessions: 20, long: true, leave: true, files: false }, || {
        stage.note("prompt");
        stage.change(&json!({"systemPrompt": NEW}))
    })?;
    stage.report("prompt_changed", &ran, |ran| {
        ran.unseen(&stage)?;
        let asked = stage.asked();
        let with_new = |record: &&serde_json::Value| record["transcript"][0]["text"] == NEW;
        ensure!(asked.last().as_ref().is_some_and(with_new), "the last question had another prompt");
        ensure!(
            !asked.first().as_ref().is_some_and(with_new),
            "the first question had the new prompt already"
        );
        Ok(())
    })
}
