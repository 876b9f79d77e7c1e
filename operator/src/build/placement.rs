//! Where replicas go: apart from each other, as far as the cluster has room.

use holdfast_crds::Agent;
use k8s_openapi::{
    api::core::v1::{
        Affinity, PodAffinityTerm, PodAntiAffinity, TopologySpreadConstraint, WeightedPodAffinityTerm,
    },
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};

use crate::names;

/// Evenly over nodes.
pub fn over_nodes(agent: &Agent) -> TopologySpreadConstraint {
    TopologySpreadConstraint {
        max_skew: 1,
        topology_key: "kubernetes.io/hostname".to_owned(),
        when_unsatisfiable: "ScheduleAnyway".to_owned(),
        match_label_keys: Some(of_one_version()),
        label_selector: Some(replicas(agent)),
        ..TopologySpreadConstraint::default()
    }
}

/// Into several zones, unless the manifest has its own idea of what to keep apart. A wish, not a second spread constraint: where a
/// node lacks the label of any one of its constraints, the scheduler passes it over in all of them, so that in a cluster
/// without zones nothing would keep replicas from meeting on one node.
pub fn over_zones(agent: &Agent, asked: Affinity) -> Affinity {
    let apart = || PodAntiAffinity {
        preferred_during_scheduling_ignored_during_execution: Some(vec![WeightedPodAffinityTerm {
            weight: 100,
            pod_affinity_term: PodAffinityTerm {
                topology_key: "topology.kubernetes.io/zone".to_owned(),
                match_label_keys: Some(of_one_version()),
                label_selector: Some(replicas(agent)),
                ..PodAffinityTerm::default()
            },
        }]),
        ..PodAntiAffinity::default()
    };
    Affinity { pod_anti_affinity: Some(asked.pod_anti_affinity.unwrap_or_else(apart)), ..asked }
}

fn replicas(agent: &Agent) -> LabelSelector {
    LabelSelector { match_labels: Some(names::selector(agent)), ..LabelSelector::default() }
}

/// While a rollout goes on, replicas of the old version do not count.
fn of_one_version() -> Vec<String> {
    vec!["pod-template-hash".to_owned()]
}
