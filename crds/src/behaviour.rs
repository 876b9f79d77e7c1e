//! How an agent works through a call, shares its sessions, stops, and knows its callers:
//! `spec.loop`, `spec.tools`, `spec.session`, `spec.shutdown`, `spec.auth`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    refs::{HEADER_PATTERN, HTTP_URL_PATTERN, HeaderFrom, SecretKeyRef},
    units::Duration,
};

pub const TOOL_SERVER_NAME_PATTERN: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";

/// The bounds of one call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Loop {
    /// How often the model may be asked within one call before the call fails with `iterations-exceeded`.
    #[schemars(range(min = 1, max = 1000))]
    pub max_iterations: u32,
    /// How long one call may take altogether, across take-overs by other replicas.
    pub call_timeout: Duration,
    /// How long one tool call may take. Also how long a stopping replica waits for a tool that has started.
    pub tool_timeout: Duration,
    /// Whether the model is offered `todo_write`, a list of its own for longer tasks. Absent: where the agent has tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub todo_write: Option<bool>,
}

impl Default for Loop {
    fn default() -> Self {
        Self {
            max_iterations: 20,
            call_timeout: Duration::from_mins(10),
            tool_timeout: Duration::from_secs(60),
            todo_write: None,
        }
    }
}

/// A tool server the model may call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ToolServer {
    /// A name for this server, unique in the Agent.
    #[schemars(length(min = 1, max = 63), regex(pattern = TOOL_SERVER_NAME_PATTERN))]
    pub name: String,
    /// An MCP server, reached by streamable HTTP.
    pub mcp: McpServer,
    /// What calling each tool again would do, by tool name. It decides what happens to a tool call that was cut
    /// off by a crash: `ReadOnly` and `Idempotent` ones are repeated, an `Unsafe` one is reported to the
    /// model as perhaps done. Unsafe where nothing is said.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 256))]
    pub safety: BTreeMap<String, Safety>,
}

/// An MCP server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct McpServer {
    /// Its endpoint, for example `http://crm-mcp/mcp`. No user name or password in it.
    #[schemars(length(max = 2048), regex(pattern = HTTP_URL_PATTERN))]
    pub url: String,
    /// Headers sent with every request whose values are read from Secrets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub headers_from: Vec<HeaderFrom>,
    /// The tools the model may see. Absent: all the server offers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), inner(length(min = 1, max = 128)))]
    pub allow: Vec<String>,
    /// Take the server's word for which of its tools are read-only or idempotent, where `safety` says nothing.
    #[serde(default)]
    pub trust_annotations: bool,
}

/// What calling a tool again would do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Safety {
    ReadOnly,
    Idempotent,
    #[default]
    Unsafe,
}

/// How sessions are held and shared between replicas.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Session {
    /// How long a replica holds a session without renewing. After a crash another replica goes on at most this
    /// much later. Shorter recovers faster and asks the store more often.
    pub lease_duration: Duration,
    /// What happens to a call for a session that is busy: `Enqueue` waits its turn, `Reject` answers 409,
    /// `Interrupt` ends the running call and takes its place.
    pub on_busy: OnBusy,
    /// How many calls may wait for one session before further ones get 429.
    #[schemars(range(min = 1, max = 10_000))]
    pub queue_limit: u32,
    /// How many calls one replica runs at once before further ones get 429.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_running_calls: u32,
    /// `Step` journals every model answer and tool result as it happens, so a crash repeats at most one step.
    /// `Call` writes once a call, is cheaper, and repeats the whole call.
    pub durability: Durability,
    /// Whether a call cut off by a crash or a rollout is taken up `Immediate`ly by another replica or only
    /// `OnNextCall` of its session.
    pub resume: Resume,
    /// How often a call that keeps killing its replica is taken up before it fails with `recovery-exhausted`.
    #[schemars(range(min = 0, max = 100))]
    pub recovery_attempts: u32,
}

impl Default for Session {
    fn default() -> Self {
        Self {
            lease_duration: Duration::from_secs(6),
            on_busy: OnBusy::default(),
            queue_limit: 32,
            max_running_calls: 512,
            durability: Durability::default(),
            resume: Resume::default(),
            recovery_attempts: 3,
        }
    }
}

/// What happens to a call for a busy session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum OnBusy {
    #[default]
    Enqueue,
    Reject,
    Interrupt,
}

/// How often a call's progress is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Durability {
    #[default]
    Step,
    Call,
}

/// When a call that was cut off is taken up again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Resume {
    #[default]
    Immediate,
    OnNextCall,
}

/// How a replica stops. The pod's grace period is the sum of these, `loop.toolTimeout` and 5 s; at most 600 s.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Shutdown {
    /// How long a pod that is about to stop goes on as before while load balancers forget it.
    pub pre_stop_delay: Duration,
    /// How long running calls may go on, and new ones start, after the stop signal.
    pub drain_timeout: Duration,
    /// How long saving what is left is tried before giving up relaying for it.
    pub save_timeout: Duration,
    /// How long a stopped replica keeps its clients' connections and relays the answers of the replicas that
    /// took their calls over.
    pub relay_timeout: Duration,
}

impl Default for Shutdown {
    fn default() -> Self {
        Self {
            pre_stop_delay: Duration::from_secs(5),
            drain_timeout: Duration::from_secs(30),
            save_timeout: Duration::from_secs(10),
            relay_timeout: Duration::from_mins(5),
        }
    }
}

/// Who may call.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Auth {
    /// `None` trusts every caller to name its user: keep the Service away from those you do not trust.
    /// `Token` asks for the bearer token in `tokenSecretRef`.
    #[serde(rename = "type")]
    pub kind: AuthType,
    /// The Secret key that holds the token. Only with `type: Token`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_secret_ref: Option<SecretKeyRef>,
    /// The request header that names the user, set by a gateway that holds the token. Absent: whoever holds the
    /// token may name any user in the path. Only with `type: Token`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128), regex(pattern = HEADER_PATTERN))]
    pub user_header: Option<String>,
}

/// How a caller is known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum AuthType {
    #[default]
    None,
    Token,
}
