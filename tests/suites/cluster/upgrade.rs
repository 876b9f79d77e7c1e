//! Two versions at once: a sidecar of an earlier commit, which does not know a field that the present one writes (`model` of
//! a message), and the present one serve the same sessions in the middle of a rollout; then everything is rolled back. Nobody
//! sees it, and what the earlier one does not know it keeps.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use holdfast_tests::cluster::stage::{AGENT, Stage, is_ready};
use holdfast_tests::cluster::talk::Talk;
use holdfast_tests::cluster::{Namespace, budgets, eventually, images};
use serde_json::{Value, json};

const SESSIONS: usize = 24;

pub fn run(namespace: &Namespace) -> Result<String> {
    let stage = Stage::set(namespace, &json!({"image": images::EARLIER}))?;
    ensure!(unknown_fields(&stage)? == 0, "the earlier sidecar writes it itself: record another commit");
    let deployment = format!("deployment/{AGENT}");
    let written = std::cell::Cell::new(0);
    let ran = stage.under_load(Talk { sessions: SESSIONS, long: true, leave: true, files: false }, || {
        stage.note("upgrade");
        let patch = json!({"spec": {"image": images::PRESENT}}).to_string();
        namespace.kubectl(&["patch", &format!("agent/{AGENT}"), "--type=merge", "-p", &patch])?;
        eventually("a replica of each version", budgets::ROLLED_OUT, || {
            let serving = serving(&stage)?;
            ensure!(serving.contains(images::PRESENT), "{serving:?}");
            Ok(())
        })?;
        // Held there, so that both serve for a while.
        namespace.kubectl(&["rollout", "pause", &deployment])?;
        stage.note("both");
        stage.flows()?;
        ensure!(serving(&stage)?.len() == 2, "only one version serves: {:?}", serving(&stage)?);
        namespace.kubectl(&["rollout", "resume", &deployment])?;
        stage.rolled_out()?;
        stage.settled(3)?;
        stage.flows()?;
        written.set(unknown_fields(&stage)?);
        stage.note("roll back");
        stage.change(&json!({"image": images::EARLIER}))?;
        stage.flows()
    })?;
    let kept = unknown_fields(&stage)?;
    stage
        .report("upgrade", &ran, |ran| {
            ran.unseen(&stage)?;
            ensure!(
                written.get() > 0,
                "the present sidecar wrote nothing that the earlier one does not know"
            );
            ensure!(kept >= written.get(), "the earlier sidecar kept {kept} of {}", written.get());
            Ok(())
        })
        .map(|report| {
            format!(
                "{report}  messages with a field the earlier version does not know: {kept}, all kept by it\n"
            )
        })
}

/// The images of the replicas that are ready.
fn serving(stage: &Stage<'_>) -> Result<BTreeSet<String>> {
    let pods = stage.pod_list()?.into_iter().filter(is_ready);
    Ok(pods
        .map(|pod| pod["spec"]["containers"][0]["image"].as_str().unwrap_or_default().to_owned())
        .collect())
}

/// How many messages have one, as whoever serves now reads them.
fn unknown_fields(stage: &Stage<'_>) -> Result<usize> {
    let states = stage.states(SESSIONS)?;
    let messages = states.iter().flat_map(|state| state["context"].as_array().into_iter().flatten());
    Ok(messages.filter(|message: &&Value| message.get("model").is_some()).count())
}
