//! [`AgentState`]: everything about one conversation that changes.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::id::{Id, Slot};
use super::message::Message;

/// The schema this version writes. It reads its own, every older one, and the next (whose new fields it keeps).
pub const SCHEMA_VERSION: u32 = 1;

#[derive(Debug, thiserror::Error)]
pub enum StateError {
    #[error("the state is not readable: {0}; nothing was changed")]
    Unreadable(#[from] serde_json::Error),
    #[error(
        "the state was written with schema {found}, and this version understands up to {}; upgrade this replica",
        SCHEMA_VERSION + 1
    )]
    TooNew { found: u32 },
}

/// The part of an [`AgentState`] that is neither its history nor kept by the store in fields of its own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Meta {
    pub schema_version: u32,
    pub summary: Option<String>,
    pub state: Map<String, Value>,
    pub permission_context: Map<String, Value>,
    pub plan_mode_context: Map<String, Value>,
    pub tasks_context: Value,
    pub tool_context: Value,
    pub trace_context: TraceContext,
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl Default for Meta {
    fn default() -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            summary: None,
            state: Map::new(),
            permission_context: Map::new(),
            plan_mode_context: Map::new(),
            tasks_context: json!({"tasks": []}),
            tool_context: json!({"activatedGroups": []}),
            trace_context: TraceContext::default(),
            extra: Map::new(),
        }
    }
}

impl Meta {
    /// Reads what a store kept. Empty bytes are a session that never had anything worth keeping.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, StateError> {
        if bytes.is_empty() {
            return Ok(Self::default());
        }
        let meta: Self = serde_json::from_slice(bytes)?;
        check_schema(meta.schema_version)?;
        Ok(meta)
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self)
            .unwrap_or_else(|error| unreachable!("a JSON tree always serialises: {error}"))
    }
}

fn check_schema(found: u32) -> Result<(), StateError> {
    if found > SCHEMA_VERSION + 1 { Err(StateError::TooNew { found }) } else { Ok(()) }
}

/// Where the conversation stands in a distributed trace.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TraceContext {
    /// 32 hex digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<String>,
    /// 16 hex digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub span_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// A conversation, whole. The interrupt mark and a call's own context are not in it: they belong to one call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentState {
    /// `None` is the anonymous user.
    #[serde(default)]
    pub user_id: Option<Id>,
    pub session_id: Id,
    /// Steps by one with each committed call; the ETag.
    #[serde(default)]
    pub version: u64,
    /// The manifest that wrote it last.
    #[serde(default)]
    pub revision: String,
    /// Model replies so far.
    #[serde(default)]
    pub turn_count: u64,
    /// A replica stopped while a call of this session ran; the call goes on elsewhere, and its commit clears this.
    #[serde(default)]
    pub shutdown_interrupted: bool,
    #[serde(default)]
    pub context: Vec<Message>,
    #[serde(flatten)]
    pub meta: Meta,
}

impl AgentState {
    pub fn new(slot: &Slot) -> Self {
        Self {
            user_id: slot.user.clone(),
            session_id: slot.session.clone(),
            version: 0,
            revision: String::new(),
            turn_count: 0,
            shutdown_interrupted: false,
            context: Vec::new(),
            meta: Meta::default(),
        }
    }

    pub fn slot(&self) -> Slot {
        Slot { user: self.user_id.clone(), session: self.session_id.clone() }
    }

    pub fn to_json(&self) -> String {
        serde_json::to_string(self)
            .unwrap_or_else(|error| unreachable!("a JSON tree always serialises: {error}"))
    }

    /// Refuses what it cannot read or is too new for it; never answers with a fresh state instead.
    pub fn from_json(text: &str) -> Result<Self, StateError> {
        let state: Self = serde_json::from_str(text)?;
        check_schema(state.meta.schema_version)?;
        Ok(state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn newer(schema: u32) -> Value {
        json!({
            "schemaVersion": schema, "userId": "alice", "sessionId": "s1", "version": 7, "revision": "9f2c",
            "summary": null, "turnCount": 2, "shutdownInterrupted": false,
            "context": [{"id": "m1", "role": "user", "content": [{"type": "text", "text": "hi"}], "mood": "sunny"}],
            "state": {"big": 12345678901234567890u64}, "permissionContext": {}, "planModeContext": {},
            "tasksContext": {"tasks": []}, "toolContext": {"activatedGroups": ["a"]},
            "traceContext": {"traceId": "0af7651916cd43dd8448eb211c80319c", "baggage": "x"},
            "invented": {"later": [1, 2]},
        })
    }

    #[test]
    fn a_state_of_the_next_schema_survives_a_read_and_a_write() {
        let newer = newer(SCHEMA_VERSION + 1);
        let state = AgentState::from_json(&newer.to_string()).expect("one schema ahead is readable");
        assert_eq!(serde_json::from_str::<Value>(&state.to_json()).expect("JSON"), newer);
    }

    #[test]
    fn a_schema_two_ahead_is_refused_and_says_what_to_do() {
        let error = AgentState::from_json(&newer(SCHEMA_VERSION + 2).to_string()).expect_err("too new");
        assert!(matches!(error, StateError::TooNew { found: 3 }));
        assert!(error.to_string().ends_with("upgrade this replica"), "{error}");
    }

    #[test]
    fn empty_bytes_are_a_fresh_meta_and_broken_ones_an_error() {
        assert_eq!(Meta::from_bytes(b"").expect("fresh"), Meta::default());
        assert!(matches!(Meta::from_bytes(b"{"), Err(StateError::Unreadable(_))));
    }
}
