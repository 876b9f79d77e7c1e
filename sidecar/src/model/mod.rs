//! Who answers: model providers behind one trait.
//!
//! A provider turns a transcript into one reply. It knows `state/` and its own wire protocol, nothing of sessions: it
//! never sees a slot, a lease or a journal, and it may be dropped at any moment.
//!
//! ```text
//! factory ──▶ scripted                     answers from the manifest
//!        └──▶ provider ──▶ openai          what they share: credentials, retry, bounds
//!                    └───▶ anthropic       what each says: render (a message, once), read (an answer)
//! ```

mod anthropic;
mod error;
mod factory;
mod openai;
mod provider;
mod rendering;
mod request;
mod retry;
mod scripted;

use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::mpsc;

pub use error::ModelError;
use factory::endpoint;
pub use factory::{ModelConfigError, from_manifest};
pub use rendering::Rendering;
pub use scripted::Scripted;

use crate::state::{Block, Entry, Usage};
use crate::tools::ToolSpec;

#[async_trait]
pub trait Model: Send + Sync + 'static {
    /// Asks once, with whatever retries the provider's protocol calls for. Dropping the future abandons the request.
    async fn reply(&self, ask: Ask<'_>) -> Result<ModelReply, ModelError>;
}

/// Everything a provider needs for one reply. Each tool call in the transcript is followed by its one result.
pub struct Ask<'a> {
    pub system: Option<&'a str>,
    /// The committed history (or its tail from a turn boundary), then what the running call has added.
    pub history: &'a [Entry],
    /// What was made of that history before; the provider's to read and to write.
    pub rendering: &'a Rendering,
    pub turn: &'a [Entry],
    pub tools: &'a [ToolSpec],
    /// Where the text goes as it comes; `None` where nobody watches, and the provider may answer in one piece.
    pub pieces: Option<mpsc::UnboundedSender<Piece>>,
    pub context: &'a Arc<CallContext>,
}

impl<'a> Ask<'a> {
    pub fn transcript(&self) -> impl Iterator<Item = &'a Entry> + use<'a> {
        self.history.iter().chain(self.turn)
    }
}

/// A piece of a reply on its way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    Text(String),
    /// The text so far is void: the provider had to ask again.
    Reset,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ModelReply {
    /// Text, thinking and tool calls, in the provider's order.
    pub content: Vec<Block>,
    pub usage: Usage,
    pub stop: Stop,
    /// What answered, in the provider's own words: it may be a newer version of what was asked for.
    pub model: Option<String>,
    /// The provider's own name for this answer.
    pub id: Option<String>,
}

impl ModelReply {
    /// A whole answer, of which nothing else is known.
    pub fn new(content: Vec<Block>, usage: Usage) -> Self {
        let asks = content.iter().any(|block| matches!(block, Block::ToolUse(_)));
        let stop = if asks { Stop::ToolCalls } else { Stop::Complete };
        Self { content, usage, stop, model: None, id: None }
    }
}

/// Why a reply ends where it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// All was said.
    Complete,
    /// It waits for its tools.
    ToolCalls,
    /// At the limit of an answer: `parameters.maxTokens`, or the end of the model's context.
    MaxTokens,
    /// The model, or the filter of its provider, would not go on.
    Refusal,
}

impl Stop {
    /// As OpenTelemetry names it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Complete => "stop",
            Self::ToolCalls => "tool_call",
            Self::MaxTokens => "length",
            Self::Refusal => "content_filter",
        }
    }

    /// What a message says of itself where it is not all that was to be said.
    pub const fn cut(self) -> Option<&'static str> {
        match self {
            Self::Complete | Self::ToolCalls => None,
            Self::MaxTokens => Some("maxTokens"),
            Self::Refusal => Some("refusal"),
        }
    }
}

/// What a caller said about this one call. It reaches tools and traces and survives a takeover, and is never part of
/// the conversation.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CallContext {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    #[serde(skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    pub attributes: std::collections::BTreeMap<String, serde_json::Value>,
    /// W3C trace context of the request, where it had one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// What tracing systems on the way have added to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tracestate: Option<String>,
}

/// A stored message that cannot be read is nobody's answer; asking again does not help.
fn unreadable(error: &serde_json::Error) -> ModelError {
    ModelError::Refused {
        detail: format!("a stored message is not readable: {error}; repair the session's state"),
    }
}
