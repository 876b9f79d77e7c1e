//! An Agent that goes, and one of the same name that comes after it.

use anyhow::{Context as _, Result, ensure};
use holdfast_crds::Agent;
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Service, ServiceAccount},
    networking::v1::NetworkPolicy,
    policy::v1::PodDisruptionBudget,
};
use kube::{
    ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::json;

use crate::bench::{Bench, QUIET, SOON, Space, eventually, scripted};

/// While somebody's finalizer keeps it, nothing of it is made again: the garbage collector would never be done.
pub async fn an_agent_that_is_being_deleted_gets_nothing_more(bench: &Bench) -> Result<()> {
    let space = bench.namespace("deleted").await?;
    let mut agent = Agent::new("a", serde_json::from_value(scripted())?);
    agent.metadata.finalizers = Some(vec!["example.com/wait".to_owned()]);
    space.api::<Agent>().create(&PostParams::default(), &agent).await?;
    let first = space.deployment("a").await?;
    space.says("a", "Progressing", "True", "RollingOut", SOON).await?;
    space.delete("a").await?;
    space.api::<Service>().delete("a", &DeleteParams::default()).await?;
    tokio::time::sleep(QUIET).await;
    ensure!(space.api::<Service>().get_opt("a").await?.is_none(), "the Service was made again");

    // Another one of the same name, before what the first left behind is gone: it waits, and then has its own.
    let released = json!({"metadata": {"finalizers": null}});
    space.api::<Agent>().patch("a", &PatchParams::default(), &Patch::Merge(&released)).await?;
    let second = space.apply("a", scripted()).await?;
    let said = space.says("a", "Progressing", "False", "ApplyFailed", SOON).await?.message;
    ensure!(said.contains("belongs to someone else"), "{said}");
    collect(&space).await?;
    let next = eventually("a Deployment of its own", SOON, async || {
        let found = space.deployment("a").await?;
        ensure!(found.uid() != first.uid());
        Ok(found)
    })
    .await?;
    let owner = next.owner_references().first().context("an owner")?;
    ensure!(Some(&owner.uid) == second.uid().as_ref(), "it is still the first one's");
    Ok(())
}

/// What the garbage collector would do.
async fn collect(space: &Space) -> Result<()> {
    let params = DeleteParams::default();
    space.api::<ServiceAccount>().delete("a", &params).await?;
    space.api::<NetworkPolicy>().delete("a", &params).await?;
    space.api::<PodDisruptionBudget>().delete("a", &params).await?;
    space.api::<ConfigMap>().delete("a", &params).await?;
    space.api::<Deployment>().delete("a", &params).await?;
    Ok(())
}
