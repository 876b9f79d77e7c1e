//! The `Agent` resource: its spec, its status, and the values that follow from them.

// Each printer column has a type of its own, and several are strings.
#![allow(clippy::duplicated_attributes)]

use std::time::Duration as StdDuration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, ResourceExt as _};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    behaviour::{Auth, Loop, Session, Shutdown, ToolServer},
    exposure::{HttpRoute, ServiceMonitor},
    filesystem::Filesystem,
    model::Model,
    pod::{Companion, NetworkAccess, PodTemplate},
    refs::TextFrom,
    store::{StateStore, StoreType},
};

/// What a pod is given beyond the sum of its own timeouts, to exit.
const GRACE_MARGIN: StdDuration = StdDuration::from_secs(5);

/// What you want your agent to be.
#[derive(CustomResource, Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "holdfast.dev",
    version = "v1alpha1",
    kind = "Agent",
    namespaced,
    shortname = "ag",
    category = "holdfast",
    doc = "An LLM agent that never loses a conversation: replicas that share their sessions through a store.",
    derive = "PartialEq",
    status = "AgentStatus",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status",
        description = "Whether the agent answers calls as the manifest asks."
    ),
    printcolumn(
        name = "Replicas",
        type_ = "integer",
        json_path = ".status.readyReplicas",
        description = "How many replicas answer."
    ),
    printcolumn(
        name = "Model",
        type_ = "string",
        json_path = ".spec.model.name",
        description = "The model that answers."
    ),
    printcolumn(
        name = "Store",
        type_ = "string",
        json_path = ".spec.stateStore.type",
        description = "Where conversations live."
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason",
        description = "Why it is ready or not."
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp",
        description = "How long it has existed."
    )
)]
#[serde(rename_all = "camelCase")]
pub struct AgentSpec {
    /// How many replicas answer. Absent: one, or what `autoscaling` decides. `kubectl scale` sets it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1000))]
    pub replicas: Option<i32>,
    /// Let the number of replicas follow the load, instead of `replicas`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub autoscaling: Option<Autoscaling>,
    /// The agent's own image. Absent: the one that belongs to the operator's version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub image: Option<String>,
    /// What the model is told before every conversation. Or use `systemPromptFrom`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 131_072))]
    pub system_prompt: Option<String>,
    /// Where the system prompt is read from, instead of `systemPrompt`. When it changes, the pods are rolled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_prompt_from: Option<TextFrom>,
    /// The model that answers.
    pub model: Model,
    /// The bounds of one call.
    #[serde(default, rename = "loop")]
    pub loop_: Loop,
    /// Tool servers the model may call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub tools: Vec<ToolServer>,
    /// Where conversations live. Required in a cluster; absent on a laptop, they live in files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_store: Option<StateStore>,
    /// The files the agent works on. Absent: none, and no tools for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filesystem: Option<Filesystem>,
    /// How sessions are held and shared between replicas.
    #[serde(default)]
    pub session: Session,
    /// How a replica stops without losing what it is doing.
    #[serde(default)]
    pub shutdown: Shutdown,
    /// Who may call.
    #[serde(default)]
    pub auth: Auth,
    /// Containers beside the agent, such as tool servers it reaches on localhost.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub companions: Vec<Companion>,
    /// A small overlay of the pods: resources, labels, scheduling, pull secrets, env and volumes.
    #[serde(default, skip_serializing_if = "PodTemplate::is_empty")]
    pub pod_template: PodTemplate,
    /// Who may reach the pods, and what they may reach. Absent: everyone may call the agent, nobody reads its
    /// metrics, and it may reach everything.
    #[serde(default, skip_serializing_if = "NetworkAccess::is_empty")]
    pub network_policy: NetworkAccess,
    /// A way in from a Gateway, in a cluster that has the Gateway API. Absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http_route: Option<HttpRoute>,
    /// How the Prometheus operator finds the agent's metrics, in a cluster that has one. Absent: it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_monitor: Option<ServiceMonitor>,
}

impl AgentSpec {
    /// How long a pod may take from being told to stop until it is killed. Never written by hand.
    pub fn grace_period(&self) -> StdDuration {
        let Shutdown { pre_stop_delay, drain_timeout, save_timeout, relay_timeout } = self.shutdown;
        [pre_stop_delay, drain_timeout, self.loop_.tool_timeout, save_timeout, relay_timeout]
            .into_iter()
            .fold(GRACE_MARGIN, |sum, part| sum.saturating_add(part.get()))
    }

    /// Whether what belongs to one replica alone would be missed by another.
    pub fn may_have_many_replicas(&self) -> bool {
        self.autoscaling.is_some() || self.replicas.is_some_and(|replicas| replicas > 1)
    }

    /// The store in effect: files where the manifest says nothing.
    pub fn effective_state_store(&self) -> StateStore {
        self.state_store.clone().unwrap_or_else(|| StateStore::of(StoreType::JsonFile))
    }
}

impl Agent {
    /// What every key of this Agent in its store begins with. A namespace has no dot, so two Agents of one name
    /// in two namespaces never share a key.
    pub fn key_prefix(&self) -> String {
        let chosen = self.spec.state_store.as_ref().and_then(|store| store.key_prefix.clone());
        chosen.unwrap_or_else(|| {
            format!("{}.{}", self.namespace().as_deref().unwrap_or("default"), self.name_any())
        })
    }
}

/// Let the number of replicas follow the load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Autoscaling {
    /// Never fewer replicas than this.
    #[serde(default = "default_min_replicas")]
    #[schemars(range(min = 1, max = 1000))]
    pub min_replicas: i32,
    /// Never more replicas than this.
    #[schemars(range(min = 1, max = 1000))]
    pub max_replicas: i32,
    /// Add replicas when they use more than this share of their requested CPU, in percent.
    #[serde(default = "default_target_cpu", rename = "targetCPUUtilization")]
    #[schemars(range(min = 1, max = 1000))]
    pub target_cpu_utilization: i32,
}

/// What the operator has seen and done.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentStatus {
    /// The generation of the manifest this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// How many replicas there are.
    #[serde(default)]
    pub replicas: i32,
    /// How many of them answer.
    #[serde(default)]
    pub ready_replicas: i32,
    /// The label selector of the replicas' pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub selector: Option<String>,
    /// Where clients inside the cluster reach the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub endpoint: Option<String>,
    /// Accepted, ResolvedRefs, StateStoreReady, StateStoreDurable, Progressing and Ready.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub conditions: Vec<Condition>,
}

fn default_min_replicas() -> i32 {
    1
}

fn default_target_cpu() -> i32 {
    70
}
