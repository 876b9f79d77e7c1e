//! At most one replica is evicted at a time; a replica that is not ready anyway never blocks a node drain.

use holdfast_crds::Agent;
use k8s_openapi::{
    api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec},
    apimachinery::pkg::{apis::meta::v1::LabelSelector, util::intstr::IntOrString},
};
use kube::ResourceExt as _;

use super::owned;
use crate::names;

pub(super) fn build(agent: &Agent) -> PodDisruptionBudget {
    PodDisruptionBudget {
        metadata: owned(agent, agent.name_any(), "agent"),
        spec: Some(PodDisruptionBudgetSpec {
            max_unavailable: Some(IntOrString::Int(1)),
            selector: Some(LabelSelector {
                match_labels: Some(names::selector(agent)),
                ..LabelSelector::default()
            }),
            unhealthy_pod_eviction_policy: Some("AlwaysAllow".to_owned()),
            ..PodDisruptionBudgetSpec::default()
        }),
        ..PodDisruptionBudget::default()
    }
}
