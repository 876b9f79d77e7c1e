//! What acts: tools behind one trait, each with a safety class.
//!
//! A tool set knows its servers and `state/`, nothing of sessions. Whether a tool may run again after an interruption is
//! decided by the runner, from the class it is given here.
//!
//! ```text
//! ToolSet ── todo        built in: a pure effect on the state, and an answer
//!     ├───── files       built in: the workspace
//!     └───── mcp         one client a configured server, connected in the background
//! ```

mod arguments;
pub mod files;
mod mcp;
mod set;
mod todo;

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;
use serde_json::value::RawValue;

pub use set::{ToolConfigError, ToolSet, from_manifest};

use crate::model::CallContext;
use crate::state::{Block, CallId, Meta, Slot, ToolUse};

/// What an interruption means for a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Safety {
    /// Changes nothing: may run as often as it likes.
    ReadOnly,
    /// The same idempotency key means the same effect: may run again.
    Idempotent,
    /// May have happened: never runs twice for one tool call.
    Unsafe,
}

impl Safety {
    pub const fn may_repeat(self) -> bool {
        !matches!(self, Self::Unsafe)
    }
}

impl From<holdfast_crds::Safety> for Safety {
    fn from(written: holdfast_crds::Safety) -> Self {
        match written {
            holdfast_crds::Safety::ReadOnly => Self::ReadOnly,
            holdfast_crds::Safety::Idempotent => Self::Idempotent,
            holdfast_crds::Safety::Unsafe => Self::Unsafe,
        }
    }
}

/// A tool as the model sees it.
#[derive(Debug, Clone)]
pub struct ToolSpec {
    /// 1 to 64 letters, digits, `_` and `-`: what every provider takes.
    pub name: String,
    pub description: String,
    /// JSON Schema of the input.
    pub schema: Arc<RawValue>,
    pub safety: Safety,
}

/// One tool call, ready to run.
pub struct ToolCall<'a> {
    /// The model's own name for it, of no other in its session.
    pub id: &'a str,
    pub name: &'a str,
    pub input: &'a Value,
    /// The same for every run of this one tool call, and of no other in the world.
    pub idempotency_key: &'a str,
    pub caller: Caller<'a>,
    pub context: &'a Arc<CallContext>,
}

/// The run a tool call belongs to.
#[derive(Debug, Clone, Copy)]
pub struct Caller<'a> {
    pub slot: &'a Slot,
    pub call: &'a CallId,
    /// Of the lease under which it runs: what acts for a session refuses a lower one than it has seen.
    pub fence: u64,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ToolOutput {
    pub content: Vec<Block>,
    pub is_error: bool,
}

impl ToolOutput {
    pub fn text(text: impl Into<String>) -> Self {
        Self { content: vec![Block::text(text)], is_error: false }
    }

    /// An error that the model sees and can act on.
    pub fn error(text: impl Into<String>) -> Self {
        Self { content: vec![Block::text(text)], is_error: true }
    }
}

#[async_trait]
pub trait Tools: Send + Sync + 'static {
    /// What is on offer now. A server's list may change between two calls of this.
    fn specs(&self) -> Arc<Vec<ToolSpec>>;
    /// Waits, not for long, until every server has been asked once for its tools. A replica that has just started would
    /// else offer fewer tools than the one whose call it takes over.
    async fn settle(&self) {}
    /// Runs one. Whatever goes wrong is an error result; dropping the future abandons the tool.
    async fn run(&self, call: ToolCall<'_>) -> ToolOutput;
}

/// No tools at all.
pub struct NoTools;

#[async_trait]
impl Tools for NoTools {
    fn specs(&self) -> Arc<Vec<ToolSpec>> {
        Arc::default()
    }

    async fn run(&self, call: ToolCall<'_>) -> ToolOutput {
        ToolOutput::error(format!("there is no tool {:?}", call.name))
    }
}

/// What a successful call of a built-in tool does to the state: a pure function of the call. `true` where it did.
pub fn builtin_effect(meta: &mut Meta, tool_use: &ToolUse) -> bool {
    tool_use.name == todo::NAME && todo::apply(meta, tool_use)
}
