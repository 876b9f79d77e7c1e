//! What has to be there before an operator is started: its rights, its definition, its program.

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::{
    api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde::Deserialize as _;

use crate::bench::{Bench, SOON, eventually};

/// From the chart, so that what is tested is what is installed.
pub async fn install_rights(bench: &Bench) -> Result<()> {
    install_rights_of(bench, "holdfast", &[]).await
}

/// The same for another release of it, set differently.
pub async fn install_rights_of(bench: &Bench, release: &str, settings: &[&str]) -> Result<()> {
    let charts = concat!(env!("CARGO_MANIFEST_DIR"), "/../charts/holdfast");
    let helm = holdfast_tests::programs::program("helm")?;
    let mut args = vec!["template", release, charts, "-n", "holdfast-system", "-s", "templates/rbac.yaml"];
    args.extend(settings.iter().flat_map(|setting| ["--set", setting]));
    let rendered = holdfast_tests::cluster::run(&helm.display().to_string(), &args, None)?;
    let params = PatchParams::apply("helm").force();
    for document in serde_yaml::Deserializer::from_str(&rendered) {
        let object = serde_json::to_value(serde_yaml::Value::deserialize(document)?)?;
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
        let (client, patch) = (bench.client.clone(), Patch::Apply(&object));
        match object["kind"].as_str() {
            Some("ClusterRole") => drop(Api::<ClusterRole>::all(client).patch(name, &params, &patch).await?),
            Some("ClusterRoleBinding") => {
                drop(Api::<ClusterRoleBinding>::all(client).patch(name, &params, &patch).await?);
            }
            Some("Role") => {
                drop(Api::<Role>::namespaced(client, namespace).patch(name, &params, &patch).await?);
            }
            Some("RoleBinding") => {
                drop(Api::<RoleBinding>::namespaced(client, namespace).patch(name, &params, &patch).await?);
            }
            _ => {}
        }
    }
    Ok(())
}

pub async fn install_definition(bench: &Bench) -> Result<()> {
    let definition: serde_json::Value = serde_yaml::from_str(include_str!("../../../crds/agents.yaml"))?;
    let definitions: Api<CustomResourceDefinition> = Api::all(bench.client.clone());
    let params = PatchParams {
        field_validation: Some(kube::api::ValidationDirective::Strict),
        ..PatchParams::apply("helm").force()
    };
    definitions.patch("agents.holdfast.dev", &params, &Patch::Apply(&definition)).await?;
    eventually("an established definition", SOON, async || {
        let found = definitions.get("agents.holdfast.dev").await?;
        let conditions = found.status.and_then(|status| status.conditions).unwrap_or_default();
        ensure!(
            conditions.iter().any(|condition| condition.type_ == "Established" && condition.status == "True")
        );
        Ok(())
    })
    .await
}

/// The program beside this one, built now so that it is never an old one.
pub fn operator_program() -> Result<PathBuf> {
    if let Some(given) = std::env::var_os("HOLDFAST_OPERATOR") {
        return Ok(given.into());
    }
    let here = std::env::current_exe()?;
    let folder =
        here.parent().and_then(|deps| deps.parent()).context("this program is in no target folder")?;
    let target = folder.parent().context("this program is in no target folder")?.display().to_string();
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml");
    let args =
        ["build", "-q", "--manifest-path", manifest, "-p", "holdfast-operator", "--target-dir", &target];
    holdfast_tests::cluster::run(&cargo, &args, None)?;
    Ok(folder.join("holdfast-operator"))
}
