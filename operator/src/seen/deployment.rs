//! A Deployment as the API server shows it: its metadata, how far it has come, and who says how many replicas it has.

use k8s_openapi::{api::apps::v1::Deployment, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use serde::{Deserialize, Deserializer, de::IgnoredAny};

use super::{Sight, metadata::Metadata, same_resource};
use crate::{live::Kind, names::FIELD_MANAGER, rollout::Rollout};

/// A Deployment: its metadata and how far it has come.
#[derive(Debug, Clone)]
pub struct SeenDeployment {
    meta: ObjectMeta,
    mark: u64,
    rollout: Rollout,
}

impl Sight for SeenDeployment {
    const KIND: Kind = Kind::Deployment;

    fn mark(&self) -> u64 {
        self.mark
    }

    fn rollout(&self) -> Option<Rollout> {
        Some(self.rollout.clone())
    }
}

impl<'de> Deserialize<'de> for SeenDeployment {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let DeploymentObject { mut metadata, spec, status } = DeploymentObject::deserialize(deserializer)?;
        let others = std::mem::take(&mut metadata.managed_fields);
        let stuck = status.conditions.into_iter().find(|condition| {
            condition.kind == "Progressing" && condition.reason == "ProgressDeadlineExceeded"
        });
        let rollout = Rollout {
            generation: metadata.generation.unwrap_or_default(),
            observed_generation: status.observed_generation,
            desired: spec.replicas.unwrap_or(1),
            replicas: status.replicas,
            updated: status.updated_replicas,
            ready: status.ready_replicas,
            available: status.available_replicas,
            stuck: stuck.map(|condition| condition.message),
            replicas_owned_by_other: others.iter().any(ManagedFields::others_replicas),
        };
        Ok(Self { mark: metadata.mark(), meta: metadata.into(), rollout })
    }
}

same_resource!([] SeenDeployment => Deployment, false);

#[derive(Deserialize)]
struct DeploymentObject {
    metadata: Metadata<ManagedFields>,
    #[serde(default)]
    spec: DeploymentSpec,
    #[serde(default)]
    status: DeploymentStatus,
}

/// Who set the number of replicas.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ManagedFields {
    #[serde(default)]
    manager: String,
    #[serde(default, rename = "fieldsV1")]
    fields: Fields,
}

impl ManagedFields {
    fn others_replicas(&self) -> bool {
        self.manager != FIELD_MANAGER && self.fields.spec.as_ref().is_some_and(|spec| spec.replicas.is_some())
    }
}

#[derive(Default, Deserialize)]
struct Fields {
    #[serde(rename = "f:spec")]
    spec: Option<SpecFields>,
}

#[derive(Deserialize)]
struct SpecFields {
    #[serde(rename = "f:replicas")]
    replicas: Option<IgnoredAny>,
}

#[derive(Default, Deserialize)]
struct DeploymentSpec {
    replicas: Option<i32>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct DeploymentStatus {
    observed_generation: i64,
    replicas: i32,
    updated_replicas: i32,
    ready_replicas: i32,
    available_replicas: i32,
    conditions: Vec<DeploymentCondition>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct DeploymentCondition {
    #[serde(rename = "type")]
    kind: String,
    reason: String,
    message: String,
}
