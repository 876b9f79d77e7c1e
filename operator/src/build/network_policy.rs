//! Who may reach the pods, and what they may reach. Unless the manifest says otherwise: clients on their port from
//! everywhere, nobody on the platform's port but the kubelet, and no limit on what the pods reach.

use holdfast_crds::{Agent, Egress, Peer};
use k8s_openapi::{
    api::networking::v1::{
        IPBlock, NetworkPolicy, NetworkPolicyEgressRule, NetworkPolicyIngressRule, NetworkPolicyPeer,
        NetworkPolicyPort, NetworkPolicySpec,
    },
    apimachinery::pkg::{apis::meta::v1::LabelSelector, util::intstr::IntOrString},
};
use kube::ResourceExt as _;

use super::owned;
use crate::names;

pub(super) fn build(agent: &Agent) -> NetworkPolicy {
    let access = &agent.spec.network_policy;
    let narrowed = !access.egress.is_empty();
    let mut ingress = vec![ingress(names::CLIENT_PORT, &access.clients)];
    if !access.metrics.is_empty() {
        ingress.push(self::ingress(names::PLATFORM_PORT, &access.metrics));
    }
    let mut policy_types = vec!["Ingress".to_owned()];
    policy_types.extend(narrowed.then(|| "Egress".to_owned()));
    NetworkPolicy {
        metadata: owned(agent, agent.name_any(), "agent"),
        spec: Some(NetworkPolicySpec {
            pod_selector: Some(labelled(names::selector(agent))),
            policy_types: Some(policy_types),
            ingress: Some(ingress),
            egress: narrowed.then(|| access.egress.iter().map(egress).collect()),
        }),
    }
}

pub(super) fn tcp(port: i32) -> NetworkPolicyPort {
    on(port, "TCP")
}

fn on(port: i32, protocol: &str) -> NetworkPolicyPort {
    NetworkPolicyPort {
        port: Some(IntOrString::Int(port)),
        protocol: Some(protocol.to_owned()),
        ..NetworkPolicyPort::default()
    }
}

fn labelled(labels: std::collections::BTreeMap<String, String>) -> LabelSelector {
    LabelSelector { match_labels: (!labels.is_empty()).then_some(labels), ..LabelSelector::default() }
}

fn peer(given: &Peer) -> NetworkPolicyPeer {
    // A peer without any selector is refused; all pods of the Agent's own namespace is what it means here.
    let pods = given.pod_labels.clone().or_else(|| given.namespace_labels.is_none().then(Default::default));
    NetworkPolicyPeer {
        namespace_selector: given.namespace_labels.clone().map(labelled),
        pod_selector: pods.map(labelled),
        ..NetworkPolicyPeer::default()
    }
}

/// Nobody named is everybody.
fn ingress(port: i32, from: &[Peer]) -> NetworkPolicyIngressRule {
    NetworkPolicyIngressRule {
        from: (!from.is_empty()).then(|| from.iter().map(peer).collect()),
        ports: Some(vec![tcp(port)]),
    }
}

fn egress(given: &Egress) -> NetworkPolicyEgressRule {
    let block = given.cidr.clone().map(|cidr| NetworkPolicyPeer {
        ip_block: Some(IPBlock { cidr, ..IPBlock::default() }),
        ..NetworkPolicyPeer::default()
    });
    let to = given.pods.as_ref().map(peer).or(block);
    let both = |port: &u16| ["TCP", "UDP"].map(|protocol| on(i32::from(*port), protocol));
    NetworkPolicyEgressRule {
        to: to.map(|to| vec![to]),
        ports: (!given.ports.is_empty()).then(|| given.ports.iter().flat_map(both).collect()),
    }
}
