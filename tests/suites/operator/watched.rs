//! What an Agent points at is watched, not polled: of five times, the one in the middle. A busy machine may keep one
//! waiting, a poll would three.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::bench::{Bench, HEALED, QUIET, SOON, Space, eventually};

const TIMES: u32 = 5;

fn with_key(secret: &str) -> Value {
    json!({"model": {"provider": "OpenAI", "name": "m", "apiKeySecretRef": {"name": secret, "key": "k"}}, "stateStore": {"type": "InMemory"}})
}

/// So long after the last that nothing which has happened is still being worked on, and not in step with anything that
/// might look from time to time.
async fn rest(round: u32) {
    tokio::time::sleep(QUIET + Duration::from_millis(70) * round).await;
}

fn soon_enough(mut took: Vec<Duration>) -> Result<()> {
    took.sort();
    ensure!(took[took.len() / 2] < HEALED, "it takes {took:?}");
    Ok(())
}

pub async fn a_missing_secret_is_healed_within_a_second(bench: &Bench) -> Result<()> {
    let space = bench.namespace("healed").await?;
    let mut took = Vec::new();
    for round in 0..TIMES {
        let (agent, secret) = (format!("a{round}"), format!("openai-{round}"));
        space.apply(&agent, with_key(&secret)).await?;
        space.says(&agent, "ResolvedRefs", "False", "SecretNotFound", SOON).await?;
        rest(round).await;
        let created = Instant::now();
        space.secret(&secret, "k", "x").await?;
        space.says(&agent, "ResolvedRefs", "True", "Resolved", SOON).await?;
        took.push(created.elapsed());
    }
    soon_enough(took)
}

pub async fn a_rotated_secret_rolls_the_pods_within_a_second(bench: &Bench) -> Result<()> {
    let space = bench.namespace("rotated-soon").await?;
    space.secret("openai", "k", "first").await?;
    space.apply("a", with_key("openai")).await?;
    let rotate = async |round: u32| space.secret("openai", "k", &format!("number {round}")).await;
    soon_enough(rolls(&space, "holdfast.dev/references", rotate).await?)
}

pub async fn a_changed_config_map_rolls_the_pods_within_a_second(bench: &Bench) -> Result<()> {
    let space = bench.namespace("prompted-soon").await?;
    let say = async |text: &str| -> Result<()> {
        let prompts = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "prompts"}, "data": {"p": text}});
        let config_maps = space.api::<k8s_openapi::api::core::v1::ConfigMap>();
        config_maps.patch("prompts", &PatchParams::apply("test").force(), &Patch::Apply(&prompts)).await?;
        Ok(())
    };
    say("Be brief.").await?;
    let spec = json!({"model": {"provider": "Scripted"}, "stateStore": {"type": "InMemory"},
        "systemPromptFrom": {"configMapKeyRef": {"name": "prompts", "key": "p"}}});
    space.apply("a", spec).await?;
    let change = async |round: u32| say(&format!("Be brief, and number {round}.")).await;
    soon_enough(rolls(&space, "holdfast.dev/manifest", change).await?)
}

/// How long each change takes to reach an annotation of the pods.
async fn rolls(
    space: &Space,
    annotation: &str,
    change: impl AsyncFn(u32) -> Result<()>,
) -> Result<Vec<Duration>> {
    space.deployment("a").await?;
    let mut took = Vec::new();
    for round in 0..TIMES {
        rest(round).await;
        let before = annotated(space, annotation).await?;
        let changed = Instant::now();
        change(round).await?;
        eventually("other pods", SOON, async || {
            ensure!(annotated(space, annotation).await? != before);
            Ok(())
        })
        .await?;
        took.push(changed.elapsed());
    }
    Ok(took)
}

async fn annotated(space: &Space, annotation: &str) -> Result<String> {
    let deployment = space.api::<Deployment>().get("a").await?;
    let pod = deployment.spec.and_then(|spec| spec.template.metadata).context("no pod")?;
    pod.annotations.unwrap_or_default().remove(annotation).with_context(|| format!("no {annotation}"))
}
