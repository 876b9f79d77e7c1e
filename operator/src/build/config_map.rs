//! The manifest as the agent in the pod reads it. What only concerns the operator is left out, so that scaling
//! or a new label does not roll the pods; what the operator looked up is written in.

use std::collections::BTreeMap;

use holdfast_crds::{Agent, JsonFile, NetworkAccess, PodTemplate, Redis, SecretKeyRef, StoreType};
use k8s_openapi::{api::core::v1::ConfigMap, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::ResourceExt as _;

use super::{Inputs, owned, redis};
use crate::names;

#[derive(Debug, thiserror::Error)]
#[error("the manifest cannot be written as YAML: {0}")]
pub struct ManifestError(#[from] serde_yaml::Error);

pub(super) fn build(agent: &Agent, inputs: &Inputs) -> Result<ConfigMap, ManifestError> {
    let manifest = serde_yaml::to_string(&as_the_pod_reads_it(agent, inputs))?;
    Ok(ConfigMap {
        metadata: owned(agent, agent.name_any(), "agent"),
        data: Some(BTreeMap::from([(names::MANIFEST_FILE.to_owned(), manifest)])),
        ..ConfigMap::default()
    })
}

fn as_the_pod_reads_it(agent: &Agent, inputs: &Inputs) -> Agent {
    let mut spec = agent.spec.clone();
    spec.replicas = None;
    spec.autoscaling = None;
    spec.image = None;
    spec.companions = Vec::new();
    spec.pod_template = PodTemplate::default();
    spec.network_policy = NetworkAccess::default();
    spec.http_route = None;
    spec.service_monitor = None;
    if spec.system_prompt_from.take().is_some() {
        spec.system_prompt.clone_from(&inputs.prompt);
    }
    if let Some(store) = &mut spec.state_store {
        store.key_prefix = Some(agent.key_prefix());
        if store.managed().is_some() {
            let name = names::redis_name(agent);
            let url_secret_ref = Some(SecretKeyRef { name, key: redis::URL_KEY.to_owned() });
            store.redis = Some(Redis { url_secret_ref, ..Redis::default() });
        }
        if store.kind == StoreType::JsonFile {
            store.json_file = Some(JsonFile { path: Some(names::STORE_DIR.to_owned()), volume: None });
        }
    }
    let mut manifest = Agent::new(&agent.name_any(), spec);
    manifest.metadata = ObjectMeta {
        name: agent.metadata.name.clone(),
        namespace: agent.namespace(),
        ..ObjectMeta::default()
    };
    manifest
}
