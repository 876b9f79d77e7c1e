//! The replicas. They roll one more at a time and never one fewer; where conversations live with the process,
//! the old one goes first.

use std::collections::BTreeMap;

use holdfast_crds::{AccessMode, Agent, Filesystem};
use k8s_openapi::{
    api::{
        apps::v1::{Deployment, DeploymentSpec, DeploymentStrategy, RollingUpdateDeployment},
        core::v1::{ConfigMap, PodTemplateSpec},
    },
    apimachinery::pkg::{
        apis::meta::v1::{LabelSelector, ObjectMeta},
        util::intstr::IntOrString,
    },
};
use kube::ResourceExt as _;
use sha2::{Digest as _, Sha256};

use super::{Inputs, Replicas, owned, pod};
use crate::names;

/// Enough to go back by hand; the manifest is what one goes back with.
const KEPT_REVISIONS: i32 = 3;

pub(super) fn build(agent: &Agent, inputs: &Inputs, config_map: &ConfigMap) -> Deployment {
    let (replicas, version) = match &inputs.replicas {
        Replicas::Apply(replicas) => (Some(*replicas), None),
        Replicas::Keep { replicas, version } => (Some(*replicas), Some(version.clone())),
        Replicas::Leave => (None, None),
    };
    Deployment {
        metadata: ObjectMeta { resource_version: version, ..owned(agent, agent.name_any(), "agent") },
        spec: Some(DeploymentSpec {
            replicas,
            revision_history_limit: Some(KEPT_REVISIONS),
            selector: LabelSelector {
                match_labels: Some(names::selector(agent)),
                ..LabelSelector::default()
            },
            strategy: Some(strategy(agent)),
            template: PodTemplateSpec {
                metadata: Some(ObjectMeta {
                    labels: Some(pod_labels(agent)),
                    annotations: Some(pod_annotations(agent, inputs, config_map)),
                    ..ObjectMeta::default()
                }),
                spec: Some(pod::build(agent, inputs)),
            },
            ..DeploymentSpec::default()
        }),
        ..Deployment::default()
    }
}

fn strategy(agent: &Agent) -> DeploymentStrategy {
    let one_store = agent.spec.state_store.as_ref().is_some_and(|store| store.kind.is_local());
    let claim = agent.spec.filesystem.as_ref().and_then(Filesystem::claim);
    // A volume that one node has at a time would keep the new pod waiting for the old one, and that for the new one.
    let one_volume = claim.is_some_and(|volume| volume.access_mode == AccessMode::ReadWriteOnce);
    if one_store || one_volume {
        return DeploymentStrategy { type_: Some("Recreate".to_owned()), rolling_update: None };
    }
    DeploymentStrategy {
        type_: Some("RollingUpdate".to_owned()),
        rolling_update: Some(RollingUpdateDeployment {
            max_surge: Some(IntOrString::Int(1)),
            max_unavailable: Some(IntOrString::Int(0)),
        }),
    }
}

fn pod_labels(agent: &Agent) -> BTreeMap<String, String> {
    let mut labels = agent.spec.pod_template.labels.clone();
    labels.extend(names::labels(agent, "agent"));
    labels.extend(names::selector(agent));
    labels
}

fn pod_annotations(agent: &Agent, inputs: &Inputs, config_map: &ConfigMap) -> BTreeMap<String, String> {
    let manifest = config_map.data.iter().flatten().next().map_or("", |(_, text)| text.as_str());
    let digest: String = Sha256::digest(manifest).iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    let mut annotations = agent.spec.pod_template.annotations.clone();
    annotations.insert(names::MANIFEST_ANNOTATION.to_owned(), digest);
    if !inputs.references.is_empty() {
        annotations.insert(names::REFERENCES_ANNOTATION.to_owned(), inputs.references.join(","));
    }
    annotations
}
