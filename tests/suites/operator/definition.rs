//! The definition installs, documents itself, and its CEL rules say what the Rust ones say.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, bail, ensure};
use holdfast_crds::{Agent, rules::RULES};
use http::Request;
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams, ValidationDirective},
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::bench::{Bench, SOON, Space};

#[derive(Deserialize)]
struct Case {
    name: String,
    #[serde(default)]
    metadata: Option<Value>,
    #[serde(default)]
    before: Option<Value>,
    spec: Value,
    #[serde(default)]
    breaks: BTreeSet<String>,
}

fn corpus() -> Result<Vec<Case>> {
    let mut corpus: serde_yaml::Value = serde_yaml::from_str(include_str!("../../../crds/corpus.yaml"))?;
    corpus.apply_merge()?;
    Ok(serde_yaml::from_value(corpus)?)
}

/// Every Agent of the corpus breaks in CEL exactly the rules it breaks in Rust, and is told each in its own words.
pub async fn cel_and_rust_agree(bench: &Bench) -> Result<()> {
    let space = bench.namespace("cel").await?;
    let mut wrong = Vec::new();
    for (index, case) in corpus()?.iter().enumerate() {
        let found = broken(&space, &format!("case-{index}"), case).await?;
        if found != case.breaks {
            wrong.push(format!("{}: CEL finds {found:?}, Rust {:?}", case.name, case.breaks));
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

async fn broken(space: &Space, name: &str, case: &Case) -> Result<BTreeSet<String>> {
    let agents: Api<Agent> = space.api();
    let metadata = case.metadata.clone().unwrap_or_else(|| json!({"name": name}));
    let agent = |spec: &Value| json!({"apiVersion": "holdfast.dev/v1alpha1", "kind": "Agent", "metadata": metadata, "spec": spec});
    let result = match &case.before {
        None => {
            let params = PostParams { dry_run: true, ..PostParams::default() };
            let api: Api<kube::core::DynamicObject> = Api::namespaced_with(
                space.client.clone(),
                &space.name,
                &kube::api::ApiResource::erase::<Agent>(&()),
            );
            api.create(&params, &serde_json::from_value(agent(&case.spec))?).await.map(drop)
        }
        Some(before) => {
            let params = PatchParams::apply("test").force();
            agents.patch(name, &params, &Patch::Apply(&agent(before))).await?;
            let changed = agents.patch(name, &params, &Patch::Apply(&agent(&case.spec))).await.map(drop);
            agents.delete(name, &DeleteParams::default()).await?;
            changed
        }
    };
    match result {
        Ok(()) => Ok(BTreeSet::new()),
        Err(kube::Error::Api(status)) if status.code == 422 => Ok(RULES
            .iter()
            .filter(|rule| status.message.contains(&format!("{}: {}", rule.reason, rule.message)))
            .map(|rule| rule.reason.to_owned())
            .collect()),
        Err(error) => bail!("{}: {error}", case.name),
    }
}

pub async fn an_unknown_field_is_refused_with_its_name(bench: &Bench) -> Result<()> {
    let space = bench.namespace("strict").await?;
    let agent = json!({"apiVersion": "holdfast.dev/v1alpha1", "kind": "Agent", "metadata": {"name": "a"},
        "spec": {"model": {"provider": "Scripted", "temprature": 1}, "stateStore": {"type": "InMemory"}}});
    let params =
        PatchParams { field_validation: Some(ValidationDirective::Strict), ..PatchParams::apply("test") };
    match space.api::<Agent>().patch("a", &params, &Patch::Apply(&agent)).await {
        Err(kube::Error::Api(status)) => {
            ensure!(status.message.contains("spec.model.temprature"), "it says: {}", status.message);
            Ok(())
        }
        other => bail!("it was not refused: {other:?}"),
    }
}

/// What a manifest leaves out is there when it is read back, and is what the Rust types would have filled in.
pub async fn defaults_are_in_the_schema(bench: &Bench) -> Result<()> {
    let space = bench.namespace("defaults").await?;
    let stored = space.apply("a", crate::bench::scripted()).await?;
    let raw: Value = serde_json::to_value(&stored.spec)?;
    let api: Api<kube::core::DynamicObject> =
        Api::namespaced_with(space.client.clone(), &space.name, &kube::api::ApiResource::erase::<Agent>(&()));
    let as_stored = api.get("a").await?.data["spec"].clone();
    ensure!(as_stored == raw, "stored {as_stored}\nbut in Rust {raw}");
    ensure!(as_stored["session"]["leaseDuration"] == "6s");
    ensure!(as_stored.get("replicas").is_none(), "replicas must have no default");
    space.delete("a").await
}

/// By its short name and its category, and with what `kubectl get` prints.
pub async fn kubectl_finds_it_and_shows_its_columns(bench: &Bench) -> Result<()> {
    let space = bench.namespace("columns").await?;
    let known = bench.client.list_api_group_resources("holdfast.dev/v1alpha1").await?.resources;
    let agents = known.iter().find(|resource| resource.name == "agents").context("no agents")?;
    ensure!(agents.short_names == Some(vec!["ag".to_owned()]), "{:?}", agents.short_names);
    ensure!(agents.categories == Some(vec!["holdfast".to_owned()]), "{:?}", agents.categories);
    let redis = json!({"model": {"provider": "OpenAI", "name": "gpt-4o-mini", "baseUrl": "http://vllm"},
        "stateStore": {"type": "Redis", "redis": {"url": "redis://127.0.0.1:1"}}});
    space.apply("a", redis).await?;
    space.says("a", "Ready", "False", "ReplicasUnavailable", SOON).await?;
    let request = Request::get("/apis/holdfast.dev/v1alpha1/namespaces/columns/agents/a")
        .header("accept", "application/json;as=Table;g=meta.k8s.io;v=v1");
    let table: Value = bench.client.request(request.body(Vec::new())?).await?;
    let columns = table["columnDefinitions"].as_array().context("no columns")?.iter();
    let columns: Vec<&str> = columns.filter_map(|column| column["name"].as_str()).collect();
    ensure!(columns == ["Name", "Ready", "Replicas", "Model", "Store", "Reason", "Age"], "{columns:?}");
    let mut cells = table["rows"][0]["cells"].clone();
    cells.as_array_mut().context("no row")?.truncate(6);
    ensure!(cells == json!(["a", "False", 0, "gpt-4o-mini", "Redis", "ReplicasUnavailable"]), "{cells}");
    Ok(())
}

/// What `kubectl explain` reads has a word on every field, down to the last.
pub async fn every_field_is_explained(bench: &Bench) -> Result<()> {
    let request = Request::get("/openapi/v3/apis/holdfast.dev/v1alpha1").body(Vec::new())?;
    let document: Value = bench.client.request(request).await?;
    let agent = &document["components"]["schemas"]["dev.holdfast.v1alpha1.Agent"]["properties"];
    let (mut mute, mut fields) = (Vec::new(), 0);
    for part in ["spec", "status"] {
        walk(&agent[part], part, &mut |path, field| {
            fields += 1;
            if field["description"].as_str().is_none_or(|text| text.trim().len() < 5) {
                mute.push(path.to_owned());
            }
        });
    }
    ensure!(fields > 150, "only {fields} fields were found");
    ensure!(mute.is_empty(), "no word on {mute:?}");
    Ok(())
}

fn walk(schema: &Value, path: &str, look: &mut impl FnMut(&str, &Value)) {
    look(path, schema);
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        walk(field, &format!("{path}.{name}"), look);
    }
    if schema["items"]["properties"].is_object() {
        for (name, field) in schema["items"]["properties"].as_object().into_iter().flatten() {
            walk(field, &format!("{path}[].{name}"), look);
        }
    }
}

pub async fn the_scale_subresource_works(bench: &Bench) -> Result<()> {
    let space = bench.namespace("scale").await?;
    let redis = json!({"model": {"provider": "Scripted"}, "stateStore": {"type": "Redis", "redis": {"url": "redis://127.0.0.1:1"}}});
    space.apply("a", redis).await?;
    let scale = json!({"spec": {"replicas": 4}});
    space.api::<Agent>().patch_scale("a", &PatchParams::default(), &Patch::Merge(&scale)).await?;
    ensure!(space.api::<Agent>().get("a").await?.spec.replicas == Some(4));
    let local = space.apply("b", crate::bench::scripted()).await?;
    let refused = space.api::<Agent>().patch_scale("b", &PatchParams::default(), &Patch::Merge(&scale)).await;
    ensure!(refused.is_err(), "a local store was scaled: {:?}", local.spec.replicas);
    Ok(())
}
