//! Pure: how far a Deployment has come, and who decides how many replicas it has.

use k8s_openapi::api::apps::v1::{Deployment, DeploymentStatus};

use crate::names::FIELD_MANAGER;

/// What is kept of a Deployment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rollout {
    pub generation: i64,
    pub observed_generation: i64,
    pub desired: i32,
    pub replicas: i32,
    pub updated: i32,
    pub ready: i32,
    pub available: i32,
    /// Why it has not come further within its deadline.
    pub stuck: Option<String>,
    /// Someone else, such as an autoscaler, has set the number of replicas.
    pub replicas_owned_by_other: bool,
}

impl Rollout {
    pub fn of(deployment: &Deployment) -> Self {
        let status = deployment.status.clone().unwrap_or_default();
        let DeploymentStatus {
            observed_generation,
            replicas,
            updated_replicas,
            ready_replicas,
            available_replicas,
            ..
        } = status;
        let stuck = status.conditions.into_iter().flatten().find(|condition| {
            condition.type_ == "Progressing"
                && condition.reason.as_deref() == Some("ProgressDeadlineExceeded")
        });
        Self {
            generation: deployment.metadata.generation.unwrap_or_default(),
            observed_generation: observed_generation.unwrap_or_default(),
            desired: deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1),
            replicas: replicas.unwrap_or_default(),
            updated: updated_replicas.unwrap_or_default(),
            ready: ready_replicas.unwrap_or_default(),
            available: available_replicas.unwrap_or_default(),
            stuck: stuck.map(|condition| condition.message.unwrap_or_default()),
            replicas_owned_by_other: replicas_owned_by_other(deployment),
        }
    }

    /// Every replica is of the newest version, and no older one is left.
    pub fn is_complete(&self) -> bool {
        self.observed_generation >= self.generation
            && self.updated == self.desired
            && self.replicas == self.desired
            && self.available >= self.desired
    }

    /// As many replicas answer as were asked for, whatever their version.
    pub fn is_available(&self) -> bool {
        self.available >= self.desired
    }
}

fn replicas_owned_by_other(deployment: &Deployment) -> bool {
    let owns_replicas = |fields: &serde_json::Value| fields["f:spec"].get("f:replicas").is_some();
    deployment
        .metadata
        .managed_fields
        .iter()
        .flatten()
        .filter(|entry| entry.manager.as_deref() != Some(FIELD_MANAGER))
        .any(|entry| entry.fields_v1.as_ref().is_some_and(|fields| owns_replicas(&fields.0)))
}
