//! Where clients reach the agent.

use holdfast_crds::Agent;
use k8s_openapi::{
    api::core::v1::{Service, ServicePort, ServiceSpec},
    apimachinery::pkg::util::intstr::IntOrString,
};
use kube::ResourceExt as _;

use super::owned;
use crate::names;

pub(super) fn build(agent: &Agent) -> Service {
    Service {
        metadata: owned(agent, agent.name_any(), "agent"),
        spec: Some(ServiceSpec {
            selector: Some(names::selector(agent)),
            ports: Some(vec![ServicePort {
                name: Some("http".to_owned()),
                app_protocol: Some("http".to_owned()),
                port: names::CLIENT_PORT,
                protocol: Some("TCP".to_owned()),
                target_port: Some(IntOrString::String("http".to_owned())),
                ..ServicePort::default()
            }]),
            ..ServiceSpec::default()
        }),
        ..Service::default()
    }
}
