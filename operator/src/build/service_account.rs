//! The identity of the pods: one that may do nothing, and carries no token.

use holdfast_crds::Agent;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::ResourceExt as _;

use super::owned;

pub(super) fn build(agent: &Agent) -> ServiceAccount {
    ServiceAccount {
        metadata: owned(agent, agent.name_any(), "agent"),
        automount_service_account_token: Some(false),
        ..ServiceAccount::default()
    }
}
