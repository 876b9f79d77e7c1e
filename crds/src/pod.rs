//! What an Agent may say about its pods: `spec.companions`, `spec.podTemplate` and `spec.networkPolicy`.
//! Deliberately small: what keeps the promises (probes, grace period, preStop, security context) has no field here.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{Affinity, Toleration},
    apimachinery::pkg::api::resource::Quantity,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    behaviour::TOOL_SERVER_NAME_PATTERN,
    refs::{ConfigMapKeyRef, OBJECT_NAME_PATTERN, SecretKeyRef},
    units::Size,
};

pub const ENV_NAME_PATTERN: &str = r"^[A-Za-z_][A-Za-z0-9_]*$";
pub const CIDR_PATTERN: &str = r"^[0-9a-fA-F:.]+/[0-9]{1,3}$";
pub const MOUNT_PATH_PATTERN: &str = r"^/[^:]*$";

/// A container beside the agent, such as a tool server it reaches on localhost. It starts before the agent and
/// stops after it (a native sidecar), so a draining agent never loses its tools.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Companion {
    /// The container's name, unique in the Agent. `agent` is taken.
    #[schemars(length(min = 1, max = 63), regex(pattern = TOOL_SERVER_NAME_PATTERN))]
    pub name: String,
    /// Its image. It must run as a user other than root and on a read-only root file system.
    #[schemars(length(min = 1, max = 512))]
    pub image: String,
    /// Replaces the image's entry point.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 4096)))]
    pub command: Vec<String>,
    /// Replaces the image's arguments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128), inner(length(max = 4096)))]
    pub args: Vec<String>,
    /// Its environment.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128))]
    pub env: Vec<EnvVar>,
    /// The TCP port on which it listens. When set, the agent starts only once this port accepts connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<u16>,
    /// What it may use.
    #[serde(default, skip_serializing_if = "Resources::is_empty")]
    pub resources: Resources,
    /// Volumes of `podTemplate.volumes` it sees, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(length(min = 1, max = 63)))]
    pub volumes: Vec<String>,
}

/// A small overlay of the pods the operator makes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodTemplate {
    /// What the agent's container may use.
    #[serde(default, skip_serializing_if = "Resources::is_empty")]
    pub resources: Resources,
    /// Labels added to the pods. Those of `holdfast.dev` and `app.kubernetes.io` are the operator's.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    pub labels: BTreeMap<String, String>,
    /// Annotations added to the pods. Those of `holdfast.dev` are the operator's.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    pub annotations: BTreeMap<String, String>,
    /// Run only on nodes with these labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    pub node_selector: BTreeMap<String, String>,
    /// Taints of nodes the pods put up with, as in a Pod.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub tolerations: Vec<Toleration>,
    /// Which nodes and neighbours the pods prefer or need, as in a Pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Affinity>,
    /// The pods' PriorityClass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = OBJECT_NAME_PATTERN))]
    pub priority_class_name: Option<String>,
    /// Secrets that hold the credentials of image registries.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub image_pull_secrets: Vec<ImagePullSecret>,
    /// Environment variables of the agent's container, for example `HTTPS_PROXY`. Those that begin with
    /// `HOLDFAST_` are the operator's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128))]
    pub env: Vec<EnvVar>,
    /// Volumes of the pods, each mounted into the agent's container at its `mountPath`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub volumes: Vec<Volume>,
}

impl PodTemplate {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// What a container asks for and may use at most.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Resources {
    /// What is set aside for it, for example `{cpu: 100m, memory: 64Mi}`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 16))]
    pub requests: BTreeMap<String, Quantity>,
    /// What it may use at most.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 16))]
    pub limits: BTreeMap<String, Quantity>,
}

impl Resources {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A Secret with the credentials of an image registry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ImagePullSecret {
    /// The Secret's name.
    #[schemars(length(min = 1, max = 253), regex(pattern = OBJECT_NAME_PATTERN))]
    pub name: String,
}

/// An environment variable: exactly one of `value`, `secretKeyRef` and `configMapKeyRef`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EnvVar {
    /// Its name.
    #[schemars(length(min = 1, max = 253), regex(pattern = ENV_NAME_PATTERN))]
    pub name: String,
    /// Its value. Not for secrets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 8192))]
    pub value: Option<String>,
    /// A key of a Secret in the Agent's namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_key_ref: Option<SecretKeyRef>,
    /// A key of a ConfigMap in the Agent's namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map_key_ref: Option<ConfigMapKeyRef>,
}

/// A volume and where it is mounted: exactly one of `emptyDir`, `configMap`, `secret` and `claim`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Volume {
    /// Its name, unique in the Agent.
    #[schemars(length(min = 1, max = 50), regex(pattern = TOOL_SERVER_NAME_PATTERN))]
    pub name: String,
    /// Where the agent and the companions that name it see it.
    #[schemars(length(min = 1, max = 1024), regex(pattern = MOUNT_PATH_PATTERN))]
    pub mount_path: String,
    /// Mount it so that nobody can write to it.
    #[serde(default)]
    pub read_only: bool,
    /// An empty folder that lives as long as the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub empty_dir: Option<EmptyDir>,
    /// The keys of a ConfigMap as files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map: Option<NamedObject>,
    /// The keys of a Secret as files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<NamedObject>,
    /// A PersistentVolumeClaim that exists already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<NamedObject>,
}

/// A folder that lives as long as the pod.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EmptyDir {
    /// The most it may hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_limit: Option<Size>,
}

/// An object in the Agent's namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NamedObject {
    /// Its name.
    #[schemars(length(min = 1, max = 253), regex(pattern = OBJECT_NAME_PATTERN))]
    pub name: String,
}

/// Who may reach the pods, and what they may reach.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkAccess {
    /// Who may call the agent, on port 8080. Absent: everyone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub clients: Vec<Peer>,
    /// Who may read its metrics, on port 9090: your Prometheus. Absent: nobody but the kubelet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub metrics: Vec<Peer>,
    /// What the pods may reach; then nothing else, so list the name server, the store, the model and the tools.
    /// Absent: everything.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub egress: Vec<Egress>,
}

impl NetworkAccess {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Pods, by their labels and those of their namespace.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Peer {
    /// Labels of their namespace. Absent: the Agent's own namespace. `{}`: every namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxProperties" = 16))]
    pub namespace_labels: Option<BTreeMap<String, String>>,
    /// Labels of the pods. Absent: all pods there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxProperties" = 16))]
    pub pod_labels: Option<BTreeMap<String, String>>,
}

/// Something the pods may reach: `pods` or `cidr`, exactly one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Egress {
    /// Pods in the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pods: Option<Peer>,
    /// Addresses, for example `203.0.113.0/24`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64), regex(pattern = CIDR_PATTERN))]
    pub cidr: Option<String>,
    /// On these ports, TCP and UDP. Absent: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(range(min = 1, max = 65535)))]
    pub ports: Vec<u16>,
}
