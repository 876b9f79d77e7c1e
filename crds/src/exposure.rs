//! How an agent is met from outside its namespace: `spec.httpRoute` and `spec.serviceMonitor`. Both are made only in
//! clusters that know these kinds.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{refs::OBJECT_NAME_PATTERN, units::Duration};

pub const HOSTNAME_PATTERN: &str =
    r"^(\*\.)?[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";
pub const PATH_PREFIX_PATTERN: &str = r"^/([A-Za-z0-9._~-]+(/[A-Za-z0-9._~-]+)*)?$";

/// A way in from a Gateway: an HTTPRoute to the agent's Service.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HttpRoute {
    /// The Gateways that take requests for the agent.
    #[schemars(length(min = 1, max = 8))]
    pub parent_refs: Vec<ParentRef>,
    /// The host names the agent answers to. Absent: all of the Gateways'.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 253), regex(pattern = HOSTNAME_PATTERN)))]
    pub hostnames: Vec<String>,
    /// Only requests below this path, which the agent then sees without it: `/support/v1/calls` as `/v1/calls`.
    #[serde(default = "default_path_prefix")]
    #[schemars(length(min = 1, max = 256), regex(pattern = PATH_PREFIX_PATTERN))]
    pub path_prefix: String,
}

/// A Gateway, or one of its listeners.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ParentRef {
    /// The Gateway's name.
    #[schemars(length(min = 1, max = 253), regex(pattern = OBJECT_NAME_PATTERN))]
    pub name: String,
    /// The Gateway's namespace. Absent: the Agent's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63), regex(pattern = OBJECT_NAME_PATTERN))]
    pub namespace: Option<String>,
    /// One listener of the Gateway. Absent: all that allow it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = OBJECT_NAME_PATTERN))]
    pub section_name: Option<String>,
}

/// How the Prometheus operator finds the agent's metrics. `networkPolicy.metrics` must let your Prometheus in.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServiceMonitor {
    /// Labels your Prometheus looks for, for example `{release: prometheus}`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 16))]
    pub labels: BTreeMap<String, String>,
    /// How often the metrics are read.
    #[serde(default = "default_interval")]
    pub interval: Duration,
}

fn default_path_prefix() -> String {
    "/".to_owned()
}

fn default_interval() -> Duration {
    Duration::from_secs(30)
}
