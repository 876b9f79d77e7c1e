//! What a conversation is: [`AgentState`] and the messages in it. Plain data.
//!
//! Everything else in the sidecar stands on this folder; it knows nobody: no store, no model, no clock.
//!
//! ```text
//! AgentState ── Meta (summary, contexts, free state)       rewritten when it changes
//!      └─────── context: [Message ── [Block]]              appended to, element by element
//! ```
//!
//! A message travels as an [`Entry`]: the bytes it was written as, parsed only when somebody looks inside. What a
//! newer replica wrote and this one does not know therefore survives untouched.

mod agent_state;
mod agentscope;
mod entry;
mod id;
mod message;
mod pairing;
mod read;
mod views;

pub use agent_state::{AgentState, Meta, SCHEMA_VERSION, StateError, TraceContext};
pub use agentscope::{from_agentscope, repairs as agentscope_repairs, to_agentscope};
pub use entry::Entry;
pub use id::{CallId, Id, IdError, MAX_ID_BYTES, Slot};
pub(crate) use message::fresh_id as fresh_message_id;
pub use message::{Block, Message, Role, ToolResult, ToolUse, Usage};
pub use pairing::{PairingError, check_pairing};
pub use views::Share;
