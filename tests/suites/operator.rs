//! The operator against a real API server. What needs pods is in the cluster suites.

#[path = "operator/bench.rs"]
mod bench;
#[path = "operator/definition.rs"]
mod definition;
#[path = "operator/objects.rs"]
mod objects;
#[path = "operator/status.rs"]
mod status;

use std::{path::PathBuf, process::ExitCode, sync::Arc};

use anyhow::{Context as _, Result, ensure};
use bench::{Bench, Operator, SOON, eventually};
use k8s_openapi::{
    api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use libtest_mimic::{Arguments, Trial};
use serde::Deserialize as _;
use tokio::runtime::Runtime;

macro_rules! trials {
    ($stand:expr, $($module:ident :: $name:ident $(($($extra:ident),*))?),* $(,)?) => {
        vec![$({
            let stand = Arc::clone($stand);
            Trial::test(concat!(stringify!($module), "::", stringify!($name)), move || {
                let outcome = stand.runtime.block_on($module::$name(&stand.bench $($(, &stand.$extra)*)?));
                outcome.map_err(|error| format!("{error:#}\n\noperator:\n{}", stand.operator.log()).into())
            })
        }),*]
    };
}

struct Stand {
    runtime: Runtime,
    bench: Bench,
    operator: Operator,
}

fn main() -> Result<ExitCode> {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let arguments = Arguments::from_args();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let (bench, operator) = runtime.block_on(start())?;
    let stand = Arc::new(Stand { runtime, bench, operator });
    let trials = trials![
        &stand,
        definition::cel_and_rust_agree,
        definition::an_unknown_field_is_refused_with_its_name,
        definition::defaults_are_in_the_schema,
        definition::the_scale_subresource_works,
        objects::an_agent_gets_its_objects_and_owns_them,
        objects::scaling_changes_no_pod,
        objects::a_changed_prompt_rolls_the_pods,
        objects::drift_is_repaired_and_what_others_own_is_left,
        objects::an_object_of_someone_else_is_not_taken,
        objects::an_autoscaler_takes_replicas_over_without_a_reset,
        objects::a_managed_redis_keeps_its_password,
        objects::files_live_on_a_claim_that_outlives_the_agent,
        objects::a_paused_agent_is_left_as_it_is,
        status::ready_follows_the_replicas,
        status::a_missing_secret_is_named_and_healed_at_once,
    ];
    let conclusion = libtest_mimic::run(&arguments, trials);
    // Alone, because they look at everything the operator does, or take rules away from everybody.
    let alone = trials![
        &stand,
        status::an_invalid_manifest_leaves_what_runs,
        status::nothing_is_written_at_rest(operator)
    ];
    let sequential = Arguments { test_threads: Some(1), ..arguments };
    let last = libtest_mimic::run(&sequential, alone);
    if conclusion.has_failed() || last.has_failed() {
        eprintln!("{}", stand.bench.server.logs());
    }
    Ok(if conclusion.has_failed() || last.has_failed() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

async fn start() -> Result<(Bench, Operator)> {
    let bench = Bench::start(operator_program()?).await?;
    bench.namespace("holdfast-system").await?;
    install_rights(&bench).await?;
    let operator = bench.operator(&["--lease=holdfast"])?;
    // Started before its definition: it waits for it.
    eventually("an operator that waits for the definition", SOON, async || {
        let answer = operator.get("/readyz").await?;
        ensure!(answer.contains("503"), "{answer}");
        Ok(())
    })
    .await
    .with_context(|| operator.log())?;
    install_definition(&bench).await?;
    eventually("a ready operator", SOON, async || {
        ensure!(operator.is_ready().await);
        Ok(())
    })
    .await
    .with_context(|| operator.log())?;
    Ok((bench, operator))
}

/// From the chart, so that what is tested is what is installed.
async fn install_rights(bench: &Bench) -> Result<()> {
    let charts = concat!(env!("CARGO_MANIFEST_DIR"), "/../charts/holdfast");
    let helm = holdfast_tests::apiserver::program("HOLDFAST_HELM", "helm")?;
    let args = ["template", "holdfast", charts, "-n", "holdfast-system", "-s", "templates/rbac.yaml"];
    let rendered = holdfast_tests::cluster::run(&helm.display().to_string(), &args, None)?;
    let params = PatchParams::apply("helm").force();
    for document in serde_yaml::Deserializer::from_str(&rendered) {
        let object = serde_json::to_value(serde_yaml::Value::deserialize(document)?)?;
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let (client, patch) = (bench.client.clone(), Patch::Apply(&object));
        match object["kind"].as_str() {
            Some("ClusterRole") => drop(Api::<ClusterRole>::all(client).patch(name, &params, &patch).await?),
            Some("ClusterRoleBinding") => {
                drop(Api::<ClusterRoleBinding>::all(client).patch(name, &params, &patch).await?)
            }
            Some("Role") => {
                drop(Api::<Role>::namespaced(client, "holdfast-system").patch(name, &params, &patch).await?)
            }
            Some("RoleBinding") => {
                drop(
                    Api::<RoleBinding>::namespaced(client, "holdfast-system")
                        .patch(name, &params, &patch)
                        .await?,
                );
            }
            _ => {}
        }
    }
    Ok(())
}

pub async fn install_definition(bench: &Bench) -> Result<()> {
    let definition: serde_json::Value = serde_yaml::from_str(include_str!("../../crds/agents.yaml"))?;
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
fn operator_program() -> Result<PathBuf> {
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
