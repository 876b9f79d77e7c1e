//! The charts, as a real API server reads them; and every pod there is, as the restricted Pod Security standard does.

use anyhow::{Context as _, Result, ensure};
use holdfast_tests::{cluster, programs::program};
use k8s_openapi::api::{
    apps::v1::{Deployment, StatefulSet},
    core::v1::{Namespace, Pod, PodTemplateSpec},
};
use kube::{
    Api, ResourceExt as _,
    api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams, ValidationDirective},
    core::{GroupVersionKind, TypeMeta},
    discovery,
};
use serde::Deserialize as _;
use serde_json::{Value, json};

use crate::bench::{Bench, QUIET, SOON, Space, eventually};

fn rendered(chart: &str, settings: &[&str]) -> Result<Vec<Value>> {
    let path = format!("{}/../charts/{chart}", env!("CARGO_MANIFEST_DIR"));
    let helm = program("helm")?.display().to_string();
    let mut args = vec!["template", "holdfast", &path, "-n", "charts"];
    args.extend(settings.iter().flat_map(|setting| ["--set", setting]));
    let text = cluster::run(&helm, &args, None)?;
    let documents = serde_yaml::Deserializer::from_str(&text).map(serde_yaml::Value::deserialize);
    let documents: Vec<Value> =
        documents.map(|document| Ok(serde_json::to_value(document?)?)).collect::<Result<_>>()?;
    Ok(documents.into_iter().filter(|document| !document.is_null()).collect())
}

/// Nothing the charts say is unknown to the API server, whichever way they are set.
pub async fn the_charts_are_understood(bench: &Bench) -> Result<()> {
    bench.namespace("charts").await?;
    bench.namespace("team-a").await?;
    let everything = [
        "watchNamespaces={team-a}",
        "dashboard.enabled=true",
        "traces.endpoint=http://otel:4318",
        "priorityClassName=system-cluster-critical",
        "imagePullSecrets[0].name=registry",
        "nodeSelector.disk=ssd",
        "podLabels.team=a",
        "podAnnotations.note=b",
        "tolerations[0].key=gpu",
        "tolerations[0].operator=Exists",
    ];
    let charts = [("holdfast-crds", &[][..]), ("holdfast", &[]), ("holdfast", &everything)];
    for (chart, settings) in charts {
        for object in rendered(chart, settings)? {
            understood(bench, &object).await.with_context(|| format!("{chart} {settings:?}: {object}"))?;
        }
    }
    let refused = rendered("holdfast", &["replica=3"]).expect_err("a value nobody knows was taken");
    ensure!(format!("{refused:#}").contains("replica"), "{refused:#}");
    Ok(())
}

async fn understood(bench: &Bench, object: &Value) -> Result<()> {
    let types: TypeMeta = serde_json::from_value(object.clone())?;
    let kind = GroupVersionKind::try_from(&types)?;
    let (resource, capabilities): (ApiResource, _) = discovery::pinned_kind(&bench.client, &kind).await?;
    let object: DynamicObject = serde_json::from_value(object.clone())?;
    let api: Api<DynamicObject> = match (capabilities.scope, object.namespace()) {
        (discovery::Scope::Cluster, _) => Api::all_with(bench.client.clone(), &resource),
        (discovery::Scope::Namespaced, namespace) => {
            Api::namespaced_with(bench.client.clone(), namespace.as_deref().unwrap_or("charts"), &resource)
        }
    };
    let strict = Some(ValidationDirective::Strict);
    let params =
        PatchParams { dry_run: true, field_validation: strict, ..PatchParams::apply("helm").force() };
    api.patch(&object.name_any(), &params, &Patch::Apply(&object)).await?;
    Ok(())
}

/// An alert or a panel that asks for a number nobody counts would be silent for ever.
pub async fn what_alerts_and_panels_ask_for_exists(bench: &Bench) -> Result<()> {
    let operator = bench.operator.as_ref().context("this suite has no operator")?;
    let counted = operator.get("/metrics").await?;
    let asked = [
        "serviceMonitor.enabled=true",
        "serviceMonitor.labels.release=p",
        "serviceMonitor.interval=15s",
        "prometheusRule.enabled=true",
        "prometheusRule.labels.release=p",
        "dashboard.enabled=true",
    ];
    let objects = rendered("holdfast", &asked)?;
    let of_kind = |kind: &'static str| objects.iter().filter(move |object| object["kind"] == kind);
    let dashboard = of_kind("ConfigMap").next().context("a dashboard")?;
    ensure!(dashboard["metadata"]["labels"]["grafana_dashboard"] == "1", "{dashboard}");
    let text = dashboard["data"]["holdfast-operator.json"].as_str().context("its text")?;
    let panels: Value = serde_json::from_str(text)?;
    let rule = of_kind("PrometheusRule").next().context("a rule")?;
    ensure!(rule["metadata"]["labels"]["release"] == "p", "{rule}");
    let mut asked_for = Vec::new();
    for asker in [&panels, rule] {
        expressions(asker, &mut asked_for);
    }
    ensure!(asked_for.len() >= 6, "{asked_for:?}");
    for name in asked_for.iter().flat_map(|text| names(text)) {
        // A counter is declared without its ending, and a histogram without its parts.
        let family =
            ["_total", "_bucket"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name.as_str());
        ensure!(counted.contains(&format!("# TYPE {family} ")), "nobody counts {name}");
    }

    let monitor = of_kind("ServiceMonitor").next().context("a monitor")?;
    ensure!(monitor["metadata"]["labels"]["release"] == "p", "{monitor}");
    let endpoint = &monitor["spec"]["endpoints"][0];
    ensure!(endpoint["interval"] == "15s" && endpoint["path"] == "/metrics", "{endpoint}");
    let service = of_kind("Service").next().context("a Service")?;
    ensure!(service["spec"]["ports"][0]["name"] == endpoint["port"], "{service}");
    for (name, value) in monitor["spec"]["selector"]["matchLabels"].as_object().context("a selector")? {
        ensure!(service["metadata"]["labels"][name] == *value, "{service} is not chosen by {name}={value}");
    }
    Ok(())
}

/// Every `expr` in it.
fn expressions(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            found.extend(fields.get("expr").and_then(Value::as_str).map(str::to_owned));
            fields.values().for_each(|field| expressions(field, found));
        }
        Value::Array(items) => items.iter().for_each(|item| expressions(item, found)),
        _ => {}
    }
}

fn names(expression: &str) -> Vec<String> {
    let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("holdfast_")).map(str::to_owned).collect()
}

/// The operator's own pods, an agent's, its companions' and its Redis'.
pub async fn every_pod_is_restricted(bench: &Bench) -> Result<()> {
    let space = bench.namespace("restricted").await?;
    let label = json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}});
    let namespaces: Api<Namespace> = Api::all(bench.client.clone());
    namespaces.patch("restricted", &PatchParams::default(), &Patch::Merge(&label)).await?;
    let spec = json!({"model": {"provider": "Scripted"}, "companions": [{"name": "crm", "image": "crm:1", "port": 8000}],
        "stateStore": {"type": "Redis", "redis": {"managed": {}}}});
    space.apply("a", spec).await?;
    let agent = space.deployment("a").await?.spec.context("a spec")?.template;
    let mut redis = space.api::<StatefulSet>().get("a-redis").await?.spec.context("a spec")?.template;
    // What the StatefulSet's controller would add.
    let data = serde_json::from_value(
        json!({"name": "data", "persistentVolumeClaim": {"claimName": "data-a-redis-0"}}),
    )?;
    redis.spec.get_or_insert_default().volumes.get_or_insert_default().push(data);
    let chart = rendered("holdfast", &[])?.into_iter().find(|object| object["kind"] == "Deployment");
    let chart: Deployment = serde_json::from_value(chart.context("a Deployment")?)?;
    let test = rendered("holdfast", &[])?.into_iter().find(|object| object["kind"] == "Pod");
    let test: Pod = serde_json::from_value(test.context("a pod for helm test")?)?;
    let test = PodTemplateSpec { spec: test.spec, ..PodTemplateSpec::default() };
    for (name, template) in [
        ("test", test),
        ("agent", agent),
        ("redis", redis),
        ("operator", chart.spec.context("a spec")?.template),
    ] {
        eventually(name, SOON, async || admitted(&space, name, &template).await).await?;
    }
    // That the standard is enforced here at all.
    let mut plain = PodTemplateSpec::default();
    plain.spec.get_or_insert_default().containers =
        vec![serde_json::from_value(json!({"name": "a", "image": "a"}))?];
    ensure!(admitted(&space, "plain", &plain).await.is_err(), "nothing is enforced");
    Ok(())
}

async fn admitted(space: &Space, name: &str, template: &PodTemplateSpec) -> Result<()> {
    let mut pod = Pod { spec: template.spec.clone(), ..Pod::default() };
    pod.metadata.name = Some(name.to_owned());
    let params = PostParams { dry_run: true, ..PostParams::default() };
    space.api::<Pod>().create(&params, &pod).await?;
    Ok(())
}

/// From the charts before these to these, as `helm upgrade` does it: the Agents and all that is theirs stay as they are,
/// and so do they when the charts are removed.
pub async fn an_upgrade_keeps_agents_running(bench: &Bench) -> Result<()> {
    bench.namespace("upgrades").await?;
    let space = bench.namespace("upgraded").await?;
    let charts = format!("{}/../charts", env!("CARGO_MANIFEST_DIR"));
    let previous = format!("{}/suites/operator/previous", env!("CARGO_MANIFEST_DIR"));
    let helm = program("helm")?.display().to_string();
    let kubeconfig = bench.server.admin()?.display().to_string();
    let run = |args: &[&str]| {
        let common = ["--kubeconfig", &kubeconfig, "--namespace", "upgrades"];
        cluster::run(&helm, &[args, &common].concat(), None)
    };
    let (definition, operator) =
        (format!("{previous}/holdfast-crds-0.1.0.tgz"), format!("{previous}/holdfast-0.1.0.tgz"));
    run(&[
        "install",
        "definition",
        &definition,
        "--take-ownership",
        "--server-side=true",
        "--force-conflicts",
    ])?;
    run(&["install", "upgraded", &operator])?;
    space.apply("a", crate::bench::scripted()).await?;
    let deployment = space.deployment("a").await?;
    space.report("a", 1, 1, 1).await?;
    space.says("a", "Ready", "True", "Ready", SOON).await?;
    let agent: Api<holdfast_crds::Agent> = space.api();
    let before = agent.get("a").await?;

    run(&["upgrade", "definition", &format!("{charts}/holdfast-crds")])?;
    run(&["upgrade", "upgraded", &format!("{charts}/holdfast")])?;
    // A look of the operator's, with the new definition.
    let note = json!({"metadata": {"annotations": {"example.com/note": "upgraded"}}});
    agent.patch("a", &PatchParams::default(), &Patch::Merge(&note)).await?;
    tokio::time::sleep(QUIET).await;
    let now = space.api::<Deployment>().get("a").await?;
    ensure!(now.uid() == deployment.uid(), "the Deployment was replaced");
    ensure!(now.spec == deployment.spec, "the pods would be rolled");
    let after = agent.get("a").await?;
    ensure!(after.uid() == before.uid() && after.spec == before.spec && after.status == before.status);

    run(&["uninstall", "upgraded"])?;
    run(&["uninstall", "definition"])?;
    ensure!(agent.get("a").await?.uid() == before.uid(), "the Agents went with the chart");
    Ok(())
}
