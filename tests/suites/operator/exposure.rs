//! HTTPRoutes and ServiceMonitors: made in clusters that know them, as soon as they do, and only there.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, ResourceExt as _,
    api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams},
    core::GroupVersionKind,
};
use serde_json::{Value, json};

use crate::bench::{Bench, SOON, Space, eventually, owner, scripted};

/// The operator looks every five seconds.
const NOTICED: Duration = Duration::from_secs(15);

fn api(space: &Space, group: &str, kind: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
    Api::namespaced_with(space.client.clone(), &space.name, &resource)
}

pub fn routes(space: &Space) -> Api<DynamicObject> {
    api(space, "gateway.networking.k8s.io", "HTTPRoute")
}

pub fn monitors(space: &Space) -> Api<DynamicObject> {
    api(space, "monitoring.coreos.com", "ServiceMonitor")
}

/// As small as a definition can be; what we say must be known to it, or it is dropped.
async fn define(bench: &Bench, group: &str, kind: &str, spec: Value) -> Result<()> {
    let plural = format!("{}s", kind.to_lowercase());
    let name = format!("{plural}.{group}");
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": name, "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"}},
        "spec": {"group": group, "scope": "Namespaced", "names": {"kind": kind, "plural": plural},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema":
                {"type": "object", "properties": {"spec": {"type": "object", "properties": spec}}}}}]}});
    let definitions: Api<CustomResourceDefinition> = Api::all(bench.client.clone());
    definitions.patch(&name, &PatchParams::apply("test").force(), &Patch::Apply(&definition)).await?;
    Ok(())
}

async fn define_both(bench: &Bench) -> Result<()> {
    let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let list = json!({"type": "array", "items": any});
    let strings = json!({"type": "array", "items": {"type": "string"}});
    let route = json!({"parentRefs": list, "hostnames": strings, "rules": list});
    define(bench, "gateway.networking.k8s.io", "HTTPRoute", route).await?;
    define(bench, "monitoring.coreos.com", "ServiceMonitor", json!({"selector": any, "endpoints": list}))
        .await
}

pub fn exposed() -> Value {
    let mut spec = scripted();
    spec["networkPolicy"] = json!({"metrics": [{"podLabels": {"app": "prometheus"}}]});
    spec["serviceMonitor"] = json!({"labels": {"release": "prometheus"}});
    spec["httpRoute"] =
        json!({"parentRefs": [{"name": "public", "namespace": "gateways"}], "pathPrefix": "/support"});
    spec
}

pub async fn routes_and_monitors_are_made_once_the_cluster_knows_them(bench: &Bench) -> Result<()> {
    let space = bench.namespace("exposed").await?;
    space.apply("a", exposed()).await?;
    space.deployment("a").await?;
    let said = space.says("a", "ResolvedRefs", "True", "Resolved", SOON).await?.message;
    ensure!(said.contains("knows no HTTPRoute") && said.contains("knows no ServiceMonitor"), "{said}");

    define_both(bench).await?;
    let route = eventually("a route", NOTICED, async || Ok(routes(&space).get("a").await?)).await?;
    let monitor = eventually("a monitor", NOTICED, async || Ok(monitors(&space).get("a").await?)).await?;
    let ours = Some("a".to_owned());
    ensure!(owner(&route) == ours && owner(&monitor) == ours);
    let rule = &route.data["spec"]["rules"][0];
    ensure!(rule["matches"][0]["path"] == json!({"type": "PathPrefix", "value": "/support"}), "{rule}");
    ensure!(rule["filters"][0]["urlRewrite"]["path"]["replacePrefixMatch"] == "/", "{rule}");
    ensure!(rule["backendRefs"] == json!([{"name": "a", "port": 8080}]), "{rule}");
    ensure!(monitor.labels().get("release").map(String::as_str) == Some("prometheus"));
    ensure!(monitor.data["spec"]["endpoints"][0]["port"] == "metrics");
    eventually("a word that nothing is missing", SOON, async || {
        let said = space.condition("a", "ResolvedRefs").await?.message;
        ensure!(!said.contains("knows no"), "{said}");
        Ok(())
    })
    .await?;

    routes(&space).delete("a", &DeleteParams::default()).await?;
    eventually("the route again", SOON, async || Ok(routes(&space).get("a").await?)).await?;
    space.apply("a", scripted()).await?;
    eventually("no route and no monitor", SOON, async || {
        let left = (routes(&space).get_opt("a").await?, monitors(&space).get_opt("a").await?);
        ensure!(left.0.is_none() && left.1.is_none());
        Ok(())
    })
    .await?;
    let service = space.api::<k8s_openapi::api::core::v1::Service>().get("a").await?;
    ensure!(service.spec.and_then(|spec| spec.ports).context("ports")?.len() == 1, "a port too many is left");

    // What bears the name already is somebody else's.
    for (name, theirs) in [("theirs-1", routes(&space)), ("theirs-2", monitors(&space))] {
        let object = DynamicObject::new(name, &ApiResource::erase::<holdfast_crds::Agent>(&()));
        let (group, kind) = match name {
            "theirs-1" => ("gateway.networking.k8s.io", "HTTPRoute"),
            _ => ("monitoring.coreos.com", "ServiceMonitor"),
        };
        let object = DynamicObject {
            types: Some(kube::core::TypeMeta { api_version: format!("{group}/v1"), kind: kind.into() }),
            ..object.data(json!({"spec": {}}))
        };
        theirs.create(&Default::default(), &object).await?;
        space.apply(name, exposed()).await?;
        let said = space.says(name, "Progressing", "False", "ApplyFailed", SOON).await?.message;
        ensure!(said.contains("belongs to someone else"), "{said}");
        ensure!(owner(&theirs.get(name).await?).is_none());
    }
    Ok(())
}
