//! A session's state as its client sees it, written from what the store has without taking the messages apart.

use serde::Serialize;
use serde_json::value::RawValue;

use super::history::read_meta;
use crate::state::{AgentState, Id, Meta, Slot};
use crate::store::{Loaded, StoreError};

/// The JSON of an [`AgentState`], and its version.
#[derive(Debug, Clone)]
pub struct StateDocument {
    pub version: u64,
    pub json: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Fields<'a> {
    user_id: Option<&'a Id>,
    session_id: &'a Id,
    version: u64,
    revision: &'a str,
    turn_count: u64,
    shutdown_interrupted: bool,
    context: Vec<&'a RawValue>,
    #[serde(flatten)]
    meta: &'a Meta,
}

impl StateDocument {
    pub(super) fn new(slot: &Slot, loaded: Loaded) -> Result<Self, StoreError> {
        let Loaded { head, meta, messages } = loaded;
        let meta = read_meta(&meta)?;
        let unreadable =
            |error| StoreError::Corrupt(format!("a message in its history is not readable: {error}"));
        let context = messages.iter().map(|message| serde_json::from_slice(message).map_err(unreadable));
        let fields = Fields {
            user_id: slot.user.as_ref(),
            session_id: &slot.session,
            version: head.version,
            revision: &head.revision,
            turn_count: head.turns,
            shutdown_interrupted: head.interrupted,
            context: context.collect::<Result<_, _>>()?,
            meta: &meta,
        };
        let json = serde_json::to_string(&fields).map_err(|error| StoreError::Corrupt(error.to_string()))?;
        Ok(Self { version: head.version, json })
    }
}

impl From<&AgentState> for StateDocument {
    fn from(state: &AgentState) -> Self {
        Self { version: state.version, json: state.to_json() }
    }
}
