//! From an Agent to its objects, and back to them when they drift.

use anyhow::{Context as _, Result, bail, ensure};
use holdfast_crds::Agent;
use k8s_openapi::api::{
    apps::v1::{Deployment, StatefulSet},
    autoscaling::v2::HorizontalPodAutoscaler,
    core::v1::{ConfigMap, PersistentVolumeClaim, Secret, Service, ServiceAccount},
    networking::v1::NetworkPolicy,
    policy::v1::PodDisruptionBudget,
};
use kube::{
    Api, ResourceExt as _,
    api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
    core::{GroupVersionKind, TypeMeta},
};
use serde_json::{Value, json};

use crate::bench::{Bench, QUIET, SOON, Space, eventually, owner, scripted};

fn redis() -> Value {
    json!({"replicas": 2, "model": {"provider": "Scripted"}, "stateStore": {"type": "Redis", "redis": {"url": "redis://127.0.0.1:1"}}})
}

pub async fn an_agent_gets_its_objects_and_owns_them(bench: &Bench) -> Result<()> {
    let space = bench.namespace("objects").await?;
    space.apply("support", redis()).await?;
    let deployment = space.deployment("support").await?;
    let spec = deployment.spec.clone().unwrap_or_default();
    ensure!(spec.replicas == Some(2));
    ensure!(spec.template.spec.as_ref().and_then(|pod| pod.termination_grace_period_seconds) == Some(410));
    let ours = Some("support".to_owned());
    ensure!(owner(&deployment) == ours);
    ensure!(owner(&space.api::<Service>().get("support").await?) == ours);
    ensure!(owner(&space.api::<ServiceAccount>().get("support").await?) == ours);
    ensure!(owner(&space.api::<PodDisruptionBudget>().get("support").await?) == ours);
    ensure!(owner(&space.api::<NetworkPolicy>().get("support").await?) == ours);
    let config_map = space.api::<ConfigMap>().get("support").await?;
    ensure!(owner(&config_map) == ours);
    let manifest = config_map.data.unwrap_or_default().remove("agent.yaml").unwrap_or_default();
    let agent = holdfast_crds::manifest::parse(&manifest)?;
    ensure!(agent.key_prefix() == "objects.support", "{manifest}");
    ensure!(agent.spec.replicas.is_none(), "scaling would roll the pods");
    ensure!(space.api::<HorizontalPodAutoscaler>().get_opt("support").await?.is_none());
    Ok(())
}

pub async fn scaling_changes_no_pod(bench: &Bench) -> Result<()> {
    let space = bench.namespace("scaling").await?;
    space.apply("a", redis()).await?;
    let before = space.deployment("a").await?;
    let mut more = redis();
    more["replicas"] = json!(5);
    space.apply("a", more).await?;
    let after = eventually("five replicas", SOON, async || {
        let deployment = space.api::<Deployment>().get("a").await?;
        ensure!(deployment.spec.as_ref().and_then(|spec| spec.replicas) == Some(5));
        Ok(deployment)
    })
    .await?;
    ensure!(template(&before) == template(&after), "the pods would be rolled");
    Ok(())
}

fn template(deployment: &Deployment) -> Option<&k8s_openapi::api::core::v1::PodTemplateSpec> {
    deployment.spec.as_ref().map(|spec| &spec.template)
}

/// By the annotation of the manifest: that of what the pods read would roll them by itself, and hide that this one
/// does not.
pub async fn a_changed_prompt_rolls_the_pods(bench: &Bench) -> Result<()> {
    let space = bench.namespace("prompt").await?;
    let mut spec = redis();
    spec["systemPrompt"] = json!("Be brief.");
    space.apply("inline", spec.clone()).await?;
    let before = digest(&space.deployment("inline").await?)?;
    spec["systemPrompt"] = json!("Be kind.");
    space.apply("inline", spec).await?;
    other_pods(&space, "inline", &before, "Be kind.").await?;

    let prompt = |text: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "prompts"}, "data": {"p": text}});
    let config_maps = space.api::<ConfigMap>();
    let params = PatchParams::apply("test").force();
    config_maps.patch("prompts", &params, &Patch::Apply(&prompt("Be brief."))).await?;
    let mut spec = redis();
    spec["systemPromptFrom"] = json!({"configMapKeyRef": {"name": "prompts", "key": "p"}});
    space.apply("a", spec).await?;
    let before = digest(&space.deployment("a").await?)?;
    config_maps.patch("prompts", &params, &Patch::Apply(&prompt("Be kind."))).await?;
    other_pods(&space, "a", &before, "Be kind.").await
}

fn digest(deployment: &Deployment) -> Result<String> {
    let annotations = template(deployment).and_then(|pod| pod.metadata.as_ref()?.annotations.as_ref());
    annotations.and_then(|all| all.get("holdfast.dev/manifest")).cloned().context("no digest of the manifest")
}

async fn other_pods(space: &Space, agent: &str, before: &str, prompt: &str) -> Result<()> {
    eventually("other pods", SOON, async || {
        ensure!(digest(&space.api::<Deployment>().get(agent).await?)? != before);
        let manifest = space.api::<ConfigMap>().get(agent).await?.data.unwrap_or_default();
        ensure!(manifest["agent.yaml"].contains(prompt), "{manifest:?}");
        Ok(())
    })
    .await
}

/// A deleted object comes back, a changed field is put right, and what others added is left alone.
pub async fn drift_is_repaired_and_what_others_own_is_left(bench: &Bench) -> Result<()> {
    let space = bench.namespace("drift").await?;
    space.apply("a", redis()).await?;
    space.deployment("a").await?;
    space.api::<Service>().delete("a", &DeleteParams::default()).await?;
    eventually("the Service again", SOON, async || Ok(space.api::<Service>().get("a").await?)).await?;

    let other = PatchParams::apply("someone-else").force();
    let change = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a", "annotations": {"example.com/note": "mine"}},
        "spec": {"template": {"spec": {"terminationGracePeriodSeconds": 100}}}});
    space.api::<Deployment>().patch("a", &other, &Patch::Apply(&change)).await?;
    eventually("the grace period again", SOON, async || {
        let deployment = space.api::<Deployment>().get("a").await?;
        let grace = template(&deployment).and_then(|pod| pod.spec.as_ref()?.termination_grace_period_seconds);
        ensure!(grace == Some(410), "it is {grace:?}");
        ensure!(deployment.annotations().get("example.com/note").map(String::as_str) == Some("mine"));
        Ok(())
    })
    .await
}

/// Nothing that bears the name already is taken over: it would be deleted with the Agent.
pub async fn an_object_of_someone_else_is_not_taken(bench: &Bench) -> Result<()> {
    let space = bench.namespace("taken").await?;
    let pod = json!({"metadata": {"labels": {"app": "theirs"}}, "spec": {"containers": [{"name": "a", "image": "a"}]}});
    let selector = json!({"matchLabels": {"app": "theirs"}});
    let theirs: [(&str, &str, Value); 8] = [
        ("v1", "ServiceAccount", json!({})),
        ("v1", "ConfigMap", json!({})),
        ("v1", "Service", json!({"spec": {"ports": [{"port": 80}], "selector": {"app": "theirs"}}})),
        ("networking.k8s.io/v1", "NetworkPolicy", json!({"spec": {"podSelector": {}}})),
        ("policy/v1", "PodDisruptionBudget", json!({"spec": {"selector": selector}})),
        ("apps/v1", "Deployment", json!({"spec": {"selector": selector, "template": pod}})),
        (
            "apps/v1",
            "StatefulSet",
            json!({"spec": {"selector": selector, "template": pod, "serviceName": "x"}}),
        ),
        (
            "autoscaling/v2",
            "HorizontalPodAutoscaler",
            json!({"spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "x"}, "maxReplicas": 3}}),
        ),
    ];
    for (api_version, kind, mut object) in theirs {
        let agent = format!("a-{}", kind.to_lowercase());
        let mut spec = redis();
        let name = match kind {
            "StatefulSet" => {
                spec["stateStore"]["redis"] = json!({"managed": {}});
                format!("{agent}-redis")
            }
            "HorizontalPodAutoscaler" => {
                spec.as_object_mut().map(|spec| spec.remove("replicas"));
                spec["autoscaling"] = json!({"maxReplicas": 9});
                agent.clone()
            }
            _ => agent.clone(),
        };
        object["apiVersion"] = json!(api_version);
        object["kind"] = json!(kind);
        object["metadata"] = json!({"name": name});
        let gvk =
            GroupVersionKind::try_from(TypeMeta { api_version: api_version.into(), kind: kind.into() })?;
        let resource = ApiResource::from_gvk(&gvk);
        let api: Api<DynamicObject> = Api::namespaced_with(space.client.clone(), &space.name, &resource);
        api.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
        let before = api.get(&name).await?;
        space.apply(&agent, spec).await?;
        let condition = space.says(&agent, "Progressing", "False", "ApplyFailed", SOON).await?;
        let said = format!("{kind} {name} exists and belongs to someone else");
        ensure!(condition.message.contains(&said), "{}", condition.message);
        let after = api.get(&name).await?;
        ensure!(after.resource_version() == before.resource_version(), "it was changed: {after:?}");
    }
    Ok(())
}

pub async fn an_autoscaler_takes_replicas_over_without_a_reset(bench: &Bench) -> Result<()> {
    let space = bench.namespace("autoscaling").await?;
    let mut fixed = redis();
    fixed["replicas"] = json!(4);
    space.apply("a", fixed.clone()).await?;
    space.deployment("a").await?;
    let mut scaled = redis();
    scaled.as_object_mut().map(|spec| spec.remove("replicas"));
    scaled["autoscaling"] = json!({"minReplicas": 2, "maxReplicas": 9});
    space.apply("a", scaled.clone()).await?;
    eventually("an autoscaler", SOON, async || Ok(space.api::<HorizontalPodAutoscaler>().get("a").await?))
        .await?;
    ensure!(replicas(&space).await? == Some(4), "the number was reset");

    // The autoscaler's word.
    let scale = json!({"spec": {"replicas": 7}});
    let autoscaler =
        PatchParams { field_manager: Some("kube-controller-manager".into()), ..PatchParams::default() };
    space.api::<Deployment>().patch_scale("a", &autoscaler, &Patch::Merge(&scale)).await?;
    scaled["systemPrompt"] = json!("changed");
    space.apply("a", scaled).await?;
    eventually("our own word withdrawn", SOON, async || {
        let managed = space.api::<Deployment>().get("a").await?.metadata.managed_fields.unwrap_or_default();
        let ours = managed.iter().filter(|entry| entry.manager.as_deref() == Some("holdfast-operator"));
        let owns = ours.into_iter().any(|entry| {
            entry.fields_v1.as_ref().is_some_and(|fields| fields.0["f:spec"].get("f:replicas").is_some())
        });
        ensure!(!owns, "the operator still owns replicas");
        Ok(())
    })
    .await?;
    ensure!(replicas(&space).await? == Some(7), "the autoscaler was overruled");

    space.apply("a", fixed).await?;
    eventually("no autoscaler", SOON, async || {
        ensure!(space.api::<HorizontalPodAutoscaler>().get_opt("a").await?.is_none());
        ensure!(replicas(&space).await? == Some(4));
        Ok(())
    })
    .await
}

async fn replicas(space: &Space) -> Result<Option<i32>> {
    Ok(space.api::<Deployment>().get("a").await?.spec.and_then(|spec| spec.replicas))
}

pub async fn a_managed_redis_keeps_its_password(bench: &Bench) -> Result<()> {
    let space = bench.namespace("managed").await?;
    let spec = json!({"replicas": 2, "model": {"provider": "Scripted"}, "stateStore": {"type": "Redis", "redis": {"managed": {"storage": "2Gi"}}}});
    space.apply("a", spec.clone()).await?;
    space.deployment("a").await?;
    let redis = space.api::<StatefulSet>().get("a-redis").await?;
    ensure!(owner(&redis) == Some("a".to_owned()));
    ensure!(redis.metadata.generation == Some(1), "the Redis was made and at once rolled");
    let secret = space.api::<Secret>().get("a-redis").await?;
    let text = |secret: &Secret, key: &str| {
        let bytes = secret
            .data
            .as_ref()
            .and_then(|data| data.get(key))
            .map(|bytes| bytes.0.clone())
            .unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let config = text(&secret, "redis.conf");
    for setting in ["appendonly yes", "appendfsync always", "maxmemory-policy noeviction"] {
        ensure!(config.contains(setting), "{config}");
    }
    ensure!(text(&secret, "url").starts_with("redis://:"));
    ensure!(text(&secret, "password").len() >= 32);
    let mut changed = spec;
    changed["replicas"] = json!(3);
    space.apply("a", changed).await?;
    tokio::time::sleep(QUIET).await;
    let again = space.api::<Secret>().get("a-redis").await?;
    ensure!(text(&again, "password") == text(&secret, "password"), "the password was changed");
    let manifest = space
        .api::<ConfigMap>()
        .get("a")
        .await?
        .data
        .unwrap_or_default()
        .remove("agent.yaml")
        .unwrap_or_default();
    ensure!(!manifest.contains(&text(&secret, "password")), "the password is in the manifest");

    let damage = json!({"stringData": {"redis.conf": "appendonly no"}});
    space.api::<Secret>().patch("a-redis", &PatchParams::default(), &Patch::Merge(&damage)).await?;
    eventually("the settings again", SOON, async || {
        let again = space.api::<Secret>().get("a-redis").await?;
        ensure!(
            text(&again, "redis.conf") == config && text(&again, "password") == text(&secret, "password")
        );
        Ok(())
    })
    .await?;
    ensure!(space.api::<Deployment>().get("a").await?.spec.is_some());
    Ok(())
}

pub async fn files_live_on_a_claim_that_outlives_the_agent(bench: &Bench) -> Result<()> {
    let space = bench.namespace("files").await?;
    space.apply("a", json!({"model": {"provider": "Scripted"}, "stateStore": {"type": "JsonFile"}})).await?;
    let deployment = space.deployment("a").await?;
    let strategy = deployment.spec.and_then(|spec| spec.strategy).and_then(|strategy| strategy.type_);
    ensure!(strategy.as_deref() == Some("Recreate"));
    let claim = space.api::<PersistentVolumeClaim>().get("a-store").await?;
    ensure!(owner(&claim).is_none(), "the claim would go with the Agent");
    Ok(())
}

/// The manifest says that every replica can mount the claim; the claim has the last word.
pub async fn files_for_all_need_a_volume_for_all(bench: &Bench) -> Result<()> {
    let space = bench.namespace("workspace").await?;
    let claim = |name: &str, mode: &str| -> Result<PersistentVolumeClaim> {
        Ok(serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {"accessModes": [mode], "resources": {"requests": {"storage": "1Gi"}}},
        }))?)
    };
    for (name, mode) in [("one", "ReadWriteOnce"), ("all", "ReadWriteMany")] {
        space.api().create(&PostParams::default(), &claim(name, mode)?).await?;
    }
    let spec = |claim: &str| {
        json!({
            "replicas": 2, "model": {"provider": "Scripted"},
            "stateStore": {"type": "Redis", "redis": {"url": "redis://127.0.0.1:1/0"}},
            "filesystem": {"type": "Local", "volume": {"claimName": claim, "accessMode": "ReadWriteMany"}},
        })
    };
    space.apply("a", spec("none")).await?;
    space.says("a", "ResolvedRefs", "False", "ClaimNotFound", SOON).await?;
    space.apply("a", spec("one")).await?;
    let said = space.says("a", "Accepted", "False", "LocalFilesystemWithReplicas", SOON).await?;
    ensure!(said.message.contains("one is not ReadWriteMany"), "{}", said.message);
    ensure!(space.api::<Deployment>().get_opt("a").await?.is_none(), "it was made all the same");
    space.apply("a", spec("all")).await?;
    space.says("a", "Accepted", "True", "Accepted", SOON).await?;
    space.deployment("a").await.map(drop)
}

/// A claim of the user's own: looked for, and looked at.
pub async fn a_claim_that_cannot_be_written_is_refused(bench: &Bench) -> Result<()> {
    let space = bench.namespace("claims").await?;
    let on = |claim: &str| json!({"model": {"provider": "Scripted"}, "stateStore": {"type": "JsonFile", "jsonFile": {"volume": {"claimName": claim}}}});
    let claim = async |name: &str, mode: &str| -> Result<()> {
        let claim = json!({"metadata": {"name": name}, "spec": {"accessModes": [mode], "resources": {"requests": {"storage": "1Gi"}}}});
        let claims = space.api::<PersistentVolumeClaim>();
        claims.create(&PostParams::default(), &serde_json::from_value(claim)?).await?;
        Ok(())
    };
    space.apply("a", on("later")).await?;
    space.says("a", "ResolvedRefs", "False", "ClaimNotFound", SOON).await?;
    claim("later", "ReadWriteOnce").await?;
    space.says("a", "ResolvedRefs", "True", "Resolved", SOON).await?;
    space.deployment("a").await?;
    claim("read-only", "ReadOnlyMany").await?;
    space.apply("b", on("read-only")).await?;
    let said = space.says("b", "ResolvedRefs", "False", "ClaimAccessMode", SOON).await?.message;
    ensure!(said.contains("PersistentVolumeClaim read-only") && said.contains("ReadWriteOnce"), "{said}");
    ensure!(space.api::<Deployment>().get_opt("b").await?.is_none(), "it was started all the same");
    Ok(())
}

pub async fn a_paused_agent_is_left_as_it_is(bench: &Bench) -> Result<()> {
    let space = bench.namespace("paused").await?;
    let mut agent: Agent = Agent::new("a", serde_json::from_value(scripted())?);
    agent.annotations_mut().insert("holdfast.dev/paused".into(), "true".into());
    space.api::<Agent>().create(&PostParams::default(), &agent).await?;
    space.says("a", "Progressing", "False", "Paused", SOON).await?;
    if space.api::<Deployment>().get_opt("a").await?.is_some() {
        bail!("it was made all the same");
    }
    let unpause = json!({"metadata": {"annotations": {"holdfast.dev/paused": null}}});
    space.api::<Agent>().patch("a", &PatchParams::default(), &Patch::Merge(&unpause)).await?;
    space.deployment("a").await.map(drop)
}
