//! The shapes of the interface as its description has them. The types that carry the data are the session layer's and
//! `state/`'s, which keep what they do not know; here stands what a client may count on.

use serde_json::{Map, Value};
use utoipa::ToSchema;

/// One message of a conversation.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct Message {
    /// Random; the server gives it.
    pub id: Option<String>,
    pub role: Role,
    pub content: Content,
    #[schema(nullable = false)]
    pub timestamp: Option<String>,
    #[schema(nullable = false)]
    pub usage: Option<Usage>,
    /// The model was stopped while it wrote this.
    #[schema(nullable = false)]
    pub interrupted: Option<bool>,
    /// Why the model stopped before all was said; absent where it was.
    #[schema(nullable = false)]
    pub stop_reason: Option<StopReason>,
    /// The model that answered, by its provider's word; absent where it is the one that was asked.
    #[schema(nullable = false)]
    pub model: Option<String>,
}

#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub enum StopReason {
    /// At the limit of an answer.
    MaxTokens,
    /// The model, or the filter of its provider, would not go on.
    Refusal,
}

#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
pub enum Role {
    System,
    User,
    Assistant,
    Tool,
}

/// A string is short for one text block.
#[derive(serde::Serialize, ToSchema)]
#[serde(untagged)]
pub enum Content {
    Text(String),
    Blocks(Vec<Block>),
}

/// A typed piece of a message: `text`, `image`, `thinking`, `tool_use`, `tool_result`, or a type yet to be invented.
#[derive(serde::Serialize, ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct Block {
    pub r#type: String,
    /// Of a `text` block.
    #[schema(nullable = false)]
    pub text: Option<String>,
}

#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct Usage {
    pub input_tokens: u64,
    pub output_tokens: u64,
}

/// What a caller says about one call: it reaches tools and traces, and is never part of the conversation.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct Context {
    #[schema(nullable = false)]
    pub request_id: Option<String>,
    #[schema(nullable = false)]
    pub attributes: Option<Map<String, Value>>,
}

/// A call, live or ended.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct Call {
    #[schema(example = "c-1")]
    pub call_id: String,
    pub status: Status,
    /// What the assistant said last.
    #[schema(example = "Hi!")]
    pub text: String,
    /// What the call added after its input.
    pub messages: Vec<Message>,
    pub usage: CallUsage,
    /// The state's version after it; null while it is live.
    pub version: Option<u64>,
    /// How often it was taken over by another replica.
    pub resumes: u32,
    pub error: Option<CallFailure>,
    /// Messages of the history that did not fit the model's context; absent where there are none.
    #[schema(nullable = false)]
    pub messages_not_sent: Option<u64>,
    /// Why `text` is not all that was to be said; absent where it is.
    #[schema(nullable = false)]
    pub stop_reason: Option<StopReason>,
}

#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
pub enum Status {
    Queued,
    Running,
    Suspended,
    Completed,
    Interrupted,
    Failed,
}

#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct CallUsage {
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub model_calls: u64,
    pub tool_calls: u64,
}

/// Why a call failed. What it had done stays in the history.
#[derive(ToSchema)]
pub struct CallFailure {
    #[schema(example = "model-unavailable")]
    pub r#type: String,
    pub detail: String,
    /// Whether `…/retry` may help.
    pub retryable: bool,
}

/// Everything about one conversation that changes. Fields that are not here are kept.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct AgentState {
    pub schema_version: u32,
    /// null is the anonymous user.
    pub user_id: Option<String>,
    pub session_id: String,
    /// Steps by one with each committed call; the ETag.
    pub version: u64,
    /// The manifest that wrote it last.
    pub revision: String,
    pub summary: Option<String>,
    /// Model replies so far.
    pub turn_count: u64,
    /// A replica stopped while a call of this session ran; the call goes on elsewhere.
    pub shutdown_interrupted: bool,
    pub context: Vec<Message>,
    pub state: Map<String, Value>,
    pub permission_context: Map<String, Value>,
    pub plan_mode_context: Map<String, Value>,
    pub tasks_context: Map<String, Value>,
    pub tool_context: Map<String, Value>,
    pub trace_context: Map<String, Value>,
}
