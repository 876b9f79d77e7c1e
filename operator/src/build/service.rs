//! Where clients reach the agent, and Prometheus its metrics where one is asked for.

use holdfast_crds::Agent;
use k8s_openapi::{
    api::core::v1::{Service, ServicePort, ServiceSpec},
    apimachinery::pkg::util::intstr::IntOrString,
};
use kube::ResourceExt as _;

use super::owned;
use crate::names;

pub(super) const METRICS_PORT: &str = "metrics";

pub(super) fn build(agent: &Agent) -> Service {
    let mut ports = vec![port("http", names::CLIENT_PORT, "http")];
    if agent.spec.service_monitor.is_some() {
        ports.push(port(METRICS_PORT, names::PLATFORM_PORT, "admin"));
    }
    Service {
        metadata: owned(agent, agent.name_any(), "agent"),
        spec: Some(ServiceSpec {
            selector: Some(names::selector(agent)),
            ports: Some(ports),
            ..ServiceSpec::default()
        }),
        ..Service::default()
    }
}

fn port(name: &str, number: i32, target: &str) -> ServicePort {
    ServicePort {
        name: Some(name.to_owned()),
        app_protocol: Some("http".to_owned()),
        port: number,
        protocol: Some("TCP".to_owned()),
        target_port: Some(IntOrString::String(target.to_owned())),
        ..ServicePort::default()
    }
}
