//! Who may reach the pods: clients on their port, and nobody on the platform's port but the kubelet. What the
//! pods may reach is not narrowed: the model and the tools are the manifest's business.

use holdfast_crds::Agent;
use k8s_openapi::{
    api::networking::v1::{NetworkPolicy, NetworkPolicyIngressRule, NetworkPolicyPort, NetworkPolicySpec},
    apimachinery::pkg::{apis::meta::v1::LabelSelector, util::intstr::IntOrString},
};
use kube::ResourceExt as _;

use super::owned;
use crate::names;

pub(super) fn build(agent: &Agent) -> NetworkPolicy {
    NetworkPolicy {
        metadata: owned(agent, agent.name_any(), "agent"),
        spec: Some(NetworkPolicySpec {
            pod_selector: Some(LabelSelector {
                match_labels: Some(names::selector(agent)),
                ..LabelSelector::default()
            }),
            policy_types: Some(vec!["Ingress".to_owned()]),
            ingress: Some(vec![NetworkPolicyIngressRule {
                ports: Some(vec![tcp(names::CLIENT_PORT)]),
                ..NetworkPolicyIngressRule::default()
            }]),
            ..NetworkPolicySpec::default()
        }),
    }
}

pub(super) fn tcp(port: i32) -> NetworkPolicyPort {
    NetworkPolicyPort {
        port: Some(IntOrString::Int(port)),
        protocol: Some("TCP".to_owned()),
        ..NetworkPolicyPort::default()
    }
}
