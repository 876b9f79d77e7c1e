//! A status that tells the truth, soon, and only when it changes.

use anyhow::{Context as _, Result, ensure};
use holdfast_crds::Agent;
use k8s_openapi::api::{
    apps::v1::Deployment, autoscaling::v2::HorizontalPodAutoscaler, core::v1::Secret, events::v1::Event,
};
use kube::{
    Api,
    api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams},
};
use serde_json::json;

use crate::bench::{Bench, QUIET, SOON, eventually, scripted};

pub async fn ready_follows_the_replicas(bench: &Bench) -> Result<()> {
    let space = bench.namespace("ready").await?;
    space.apply("a", scripted()).await?;
    space.deployment("a").await?;
    space.says("a", "Ready", "False", "ReplicasUnavailable", SOON).await?;
    space.says("a", "StateStoreDurable", "False", "MemoryOnly", SOON).await?;
    space.report("a", 1, 1, 1).await?;
    space.says("a", "Ready", "True", "Ready", SOON).await?;
    space.says("a", "Progressing", "False", "Complete", SOON).await?;
    let status = space.api::<Agent>().get("a").await?.status.unwrap_or_default();
    ensure!(status.endpoint.as_deref() == Some("http://a.ready.svc:8080"));
    ensure!(status.selector.as_deref() == Some("holdfast.dev/agent=a"));
    ensure!((status.replicas, status.ready_replicas) == (1, 1));

    // A new manifest: what runs still answers, but Ready does not yet speak of the new one.
    let mut changed = scripted();
    changed["systemPrompt"] = json!("changed");
    let generation = space.apply("a", changed).await?.metadata.generation;
    space.says("a", "Progressing", "True", "RollingOut", SOON).await?;
    let ready = space.condition("a", "Ready").await?;
    ensure!(ready.status == "True" && ready.observed_generation < generation, "{ready:?}");
    space.report("a", 1, 1, 1).await?;
    eventually("Ready for the new manifest", SOON, async || {
        ensure!(space.condition("a", "Ready").await?.observed_generation == generation);
        Ok(())
    })
    .await
}

pub async fn a_missing_secret_is_named_and_healed_at_once(bench: &Bench) -> Result<()> {
    let space = bench.namespace("missing").await?;
    let spec = json!({"model": {"provider": "OpenAI", "name": "m", "apiKeySecretRef": {"name": "openai", "key": "api-key"}}, "stateStore": {"type": "InMemory"}});
    space.apply("a", spec).await?;
    let condition = space.says("a", "ResolvedRefs", "False", "SecretNotFound", SOON).await?;
    ensure!(condition.message.contains("Secret openai does not exist"), "{}", condition.message);
    space.says("a", "Ready", "False", "UnresolvedRefs", SOON).await?;
    ensure!(space.api::<Deployment>().get_opt("a").await?.is_none());

    space.secret("openai", "wrong-key", "x").await?;
    let condition = space.says("a", "ResolvedRefs", "False", "KeyNotFound", SOON).await?;
    ensure!(condition.message.contains("has no key api-key"), "{}", condition.message);
    space.secret("openai", "api-key", "x").await?;
    space.says("a", "ResolvedRefs", "True", "Resolved", SOON).await?;
    let before = space.deployment("a").await?;

    // Rotated: the pods are rolled; nothing of the value is in the annotation.
    space.secret("openai", "api-key", "another-value").await?;
    eventually("other pods", SOON, async || {
        let after = space.api::<Deployment>().get("a").await?;
        ensure!(
            before.spec.as_ref().map(|spec| &spec.template) != after.spec.as_ref().map(|spec| &spec.template)
        );
        Ok(())
    })
    .await?;
    eventually("Events", SOON, async || {
        let events: Api<Event> = space.api();
        let reasons: Vec<String> = events
            .list(&Default::default())
            .await?
            .items
            .into_iter()
            .filter_map(|event| event.reason)
            .collect();
        for reason in ["SecretNotFound", "KeyNotFound", "Resolved"] {
            ensure!(reasons.iter().any(|found| found == reason), "there is no Event {reason}: {reasons:?}");
        }
        Ok(())
    })
    .await
}

/// The same Event again is counted, not repeated.
pub async fn an_event_that_comes_again_is_counted(bench: &Bench) -> Result<()> {
    let space = bench.namespace("counted").await?;
    let spec = json!({"model": {"provider": "OpenAI", "name": "m", "apiKeySecretRef": {"name": "openai", "key": "k"}}, "stateStore": {"type": "InMemory"}});
    space.apply("a", spec).await?;
    for _ in 0..3 {
        space.secret("openai", "k", "x").await?;
        space.says("a", "ResolvedRefs", "True", "Resolved", SOON).await?;
        space.api::<Secret>().delete("openai", &DeleteParams::default()).await?;
        space.says("a", "ResolvedRefs", "False", "SecretNotFound", SOON).await?;
    }
    eventually("one Event that counts", SOON, async || {
        let events = space.api::<Event>().list(&Default::default()).await?.items;
        let told: Vec<&Event> =
            events.iter().filter(|event| event.reason.as_deref() == Some("SecretNotFound")).collect();
        ensure!(told.len() == 1, "there are {}", told.len());
        let series = told[0].series.as_ref().context("it is not counted")?;
        ensure!(series.count >= 3, "it is counted {} times", series.count);
        Ok(())
    })
    .await
}

/// An object that an older definition let in: what runs is left, and the status says why nothing changes.
pub async fn an_invalid_manifest_leaves_what_runs(bench: &Bench) -> Result<()> {
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
    let space = bench.namespace("invalid").await?;
    let mut spec = scripted();
    spec["replicas"] = json!(1);
    space.apply("a", spec.clone()).await?;
    let before = space.deployment("a").await?;
    let definitions: Api<CustomResourceDefinition> = Api::all(bench.client.clone());
    let mut older = definitions.get("agents.holdfast.dev").await?;
    let schema = older.spec.versions[0].schema.as_mut().and_then(|schema| schema.open_api_v3_schema.as_mut());
    let spec_schema = schema.and_then(|schema| schema.properties.as_mut()?.get_mut("spec"));
    let rules = spec_schema.map(|spec| {
        let model = spec.properties.as_mut().and_then(|spec| spec.get_mut("model")?.properties.as_mut());
        if let Some(provider) = model.and_then(|model| model.get_mut("provider")) {
            provider.enum_ = None;
        }
        std::mem::take(&mut spec.x_kubernetes_validations)
    });
    definitions.replace("agents.holdfast.dev", &Default::default(), &older).await?;

    spec["replicas"] = json!(3);
    let written =
        eventually("an API server without the rule", SOON, async || space.apply("a", spec.clone()).await)
            .await;
    // One that this operator, and so this test, cannot even read.
    let unreadable = json!({"apiVersion": "holdfast.dev/v1alpha1", "kind": "Agent", "metadata": {"name": "b"},
        "spec": {"model": {"provider": "Oracle", "name": "m", "baseUrl": "http://oracle"}, "stateStore": {"type": "InMemory"}}});
    let raw: Api<DynamicObject> =
        Api::namespaced_with(space.client.clone(), &space.name, &ApiResource::erase::<Agent>(&()));
    let unreadable = raw.create(&Default::default(), &serde_json::from_value(unreadable)?).await;
    let restored = crate::setup::install_definition(bench).await;
    ensure!(rules.flatten().is_some(), "the definition had no rules");
    written?;
    unreadable?;
    restored?;
    let condition = space.says("a", "Accepted", "False", "LocalStoreWithReplicas", SOON).await?;
    ensure!(condition.message.contains("set replicas to 1"), "{}", condition.message);
    space.says("a", "Ready", "False", "NotAccepted", SOON).await?;
    let after = space.api::<Deployment>().get("a").await?;
    ensure!(before.spec == after.spec, "what runs was changed");

    eventually("a word about what cannot be read", SOON, async || {
        let status = raw.get("b").await?.data["status"].clone();
        let accepted = &status["conditions"][0];
        ensure!(accepted["reason"] == "Unreadable", "{status}");
        ensure!(accepted["message"].as_str().is_some_and(|said| said.contains("Oracle")), "{status}");
        Ok(())
    })
    .await?;
    // And nobody else is kept waiting by it.
    space.apply("c", scripted()).await?;
    space.deployment("c").await.map(drop)
}

/// Nothing is written where nothing has changed, however often it is looked at.
pub async fn nothing_is_written_at_rest(bench: &Bench) -> Result<()> {
    let operator = bench.operator.as_ref().context("this suite has no operator")?;
    let space = bench.namespace("rest").await?;
    space.apply("a", scripted()).await?;
    space.deployment("a").await?;
    space.report("a", 1, 1, 1).await?;
    space.says("a", "Ready", "True", "Ready", SOON).await?;
    let scaled = json!({"model": {"provider": "Scripted"}, "autoscaling": {"maxReplicas": 3}, "stateStore": {"type": "Redis", "redis": {"url": "redis://127.0.0.1:1"}}});
    space.apply("scaled", scaled).await?;
    let autoscalers = space.api::<HorizontalPodAutoscaler>();
    eventually("an autoscaler", SOON, async || Ok(autoscalers.get("scaled").await?)).await?;
    tokio::time::sleep(QUIET).await;
    let version = space.api::<Agent>().get("a").await?.metadata.resource_version;
    let (reconciles, writes) = (
        operator.metric("holdfast_operator_reconciles_total").await?,
        operator.metric("holdfast_operator_writes_total").await?,
    );
    // A look without a change: an annotation of someone else.
    for count in 0..5 {
        let note = json!({"metadata": {"annotations": {"example.com/count": count.to_string()}}});
        space.api::<Agent>().patch("a", &PatchParams::default(), &Patch::Merge(&note)).await?;
        // What an autoscaler says of itself, every few seconds.
        let status =
            json!({"status": {"currentReplicas": 1, "desiredReplicas": count, "currentMetrics": []}});
        autoscalers.patch_status("scaled", &PatchParams::default(), &Patch::Merge(&status)).await?;
    }
    eventually("a look", SOON, async || {
        ensure!(operator.metric("holdfast_operator_reconciles_total").await? > reconciles);
        Ok(())
    })
    .await?;
    tokio::time::sleep(QUIET).await;
    let after = operator.metric("holdfast_operator_writes_total").await?;
    ensure!(after == writes, "{} writes for nothing since {version:?}", after - writes);
    Ok(())
}
