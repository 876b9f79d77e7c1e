//! Pure: from an Agent and what it points at to every object it needs. One file an object.

mod autoscaler;
mod claim;
mod config_map;
mod deployment;
mod disruption_budget;
mod http_route;
mod network_policy;
mod placement;
mod pod;
mod redis;
mod service;
mod service_account;
mod service_monitor;
#[cfg(test)]
mod tests;

use std::hash::{Hash, Hasher};

use holdfast_crds::Agent;
use k8s_openapi::{
    api::{
        apps::v1::Deployment,
        autoscaling::v2::HorizontalPodAutoscaler,
        core::v1::{ConfigMap, PersistentVolumeClaim, Service, ServiceAccount},
        networking::v1::NetworkPolicy,
        policy::v1::PodDisruptionBudget,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{Resource as _, ResourceExt as _};

use crate::names;
pub use http_route::HTTPRoute;
pub use redis::{
    ManagedRedis, PASSWORD_KEY as REDIS_PASSWORD_KEY, Password, URL_KEY as REDIS_URL_KEY,
    secret_data as redis_secret_data,
};
pub use service_monitor::ServiceMonitor;

/// How many replicas to ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Replicas {
    Apply(i32),
    /// The number it has at this version: refused if anyone has changed it since.
    Keep {
        replicas: i32,
        version: String,
    },
    /// An autoscaler owns the number now.
    Leave,
}

impl Hash for Replicas {
    /// What is asked for, not when that was found out.
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        match self {
            Self::Apply(replicas) | Self::Keep { replicas, .. } => Some(replicas).hash(hasher),
            Self::Leave => None::<i32>.hash(hasher),
        }
    }
}

/// What the build needs beside the Agent: everything that had to be looked up.
#[derive(Debug, Clone, Hash)]
pub struct Inputs {
    /// The text `systemPromptFrom` points at.
    pub prompt: Option<String>,
    /// What the pods read and which version of it there is: `Secret/redis=<uid>/<resourceVersion>`.
    pub references: Vec<String>,
    pub replicas: Replicas,
    /// A managed Redis' password, and the version of the Secret that holds it once there is one.
    pub redis: Option<Password>,
    pub sidecar_image: String,
    pub redis_image: String,
}

/// Every object an Agent needs. Whoever takes one apart must name them all, so that none is forgotten.
#[derive(Debug, Clone)]
pub struct Resources {
    pub service_account: ServiceAccount,
    pub config_map: ConfigMap,
    pub service: Service,
    pub disruption_budget: PodDisruptionBudget,
    pub network_policy: NetworkPolicy,
    /// A claim is only ever made, never taken away: conversations are on it.
    pub claim: Option<PersistentVolumeClaim>,
    pub redis: Option<ManagedRedis>,
    pub deployment: Deployment,
    pub autoscaler: Option<HorizontalPodAutoscaler>,
    pub http_route: Option<HTTPRoute>,
    pub service_monitor: Option<ServiceMonitor>,
}

pub fn build(agent: &Agent, inputs: &Inputs) -> Result<Resources, ManifestError> {
    let config_map = config_map::build(agent, inputs)?;
    Ok(Resources {
        service_account: service_account::build(agent),
        service: service::build(agent),
        disruption_budget: disruption_budget::build(agent),
        network_policy: network_policy::build(agent),
        claim: claim::build(agent),
        redis: inputs.redis.as_ref().map(|password| redis::build(agent, inputs, password)),
        deployment: deployment::build(agent, inputs, &config_map),
        autoscaler: autoscaler::build(agent),
        http_route: http_route::build(agent),
        service_monitor: service_monitor::build(agent),
        config_map,
    })
}

pub use config_map::ManifestError;

/// Owned by the Agent, so that it goes when the Agent goes.
fn owned(agent: &Agent, name: String, component: &str) -> ObjectMeta {
    let mut labels = names::labels(agent, component);
    labels.extend(names::selector(agent));
    ObjectMeta {
        name: Some(name),
        namespace: agent.namespace(),
        labels: Some(labels),
        owner_references: agent.controller_owner_ref(&()).map(|owner| vec![owner]),
        ..ObjectMeta::default()
    }
}

/// Whole seconds, rounded up: a grace period must not be cut short.
fn seconds(duration: std::time::Duration) -> i64 {
    i64::try_from(duration.as_millis().div_ceil(1000)).unwrap_or(i64::MAX)
}
