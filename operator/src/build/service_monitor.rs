//! How the Prometheus operator finds the agent's metrics, when the manifest asks for it. Of its API only what is said
//! here.

use holdfast_crds::Agent;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::{CustomResource, ResourceExt as _};
use serde::{Deserialize, Serialize};

use super::{owned, service};
use crate::names;

#[derive(CustomResource, Debug, Clone, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "monitoring.coreos.com",
    version = "v1",
    kind = "ServiceMonitor",
    namespaced,
    schema = "disabled"
)]
pub struct ServiceMonitorSpec {
    selector: LabelSelector,
    endpoints: Vec<Endpoint>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Endpoint {
    port: String,
    path: String,
    interval: String,
}

pub(super) fn build(agent: &Agent) -> Option<ServiceMonitor> {
    let asked = agent.spec.service_monitor.as_ref()?;
    let mut metadata = owned(agent, agent.name_any(), "agent");
    let mut labels = asked.labels.clone();
    labels.extend(metadata.labels.take().unwrap_or_default());
    metadata.labels = Some(labels);
    // A managed Redis' Service bears the agent's name too, but is the store's.
    let mut chosen = names::selector(agent);
    chosen.insert("app.kubernetes.io/component".to_owned(), "agent".to_owned());
    Some(ServiceMonitor {
        metadata,
        spec: ServiceMonitorSpec {
            selector: LabelSelector { match_labels: Some(chosen), ..LabelSelector::default() },
            endpoints: vec![Endpoint {
                port: service::METRICS_PORT.to_owned(),
                path: "/metrics".to_owned(),
                interval: asked.interval.to_string(),
            }],
        },
    })
}
