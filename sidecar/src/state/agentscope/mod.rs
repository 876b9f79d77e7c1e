//! AgentScope's own form of a state, in and out.
//!
//! Theirs is snake_case, with the roles in upper case, and lets an assistant's message hold tool calls and their results
//! together. Ours is stricter: a result is a message of its own, and every tool call has one. So a message may become
//! several, and a call without a result gets one that says so.
//!
//! ```text
//! import   convert, then compare: export it again, and note under `agentscope` what would not come back the same
//! export   convert, then put back what was noted, where it still belongs
//! ```
//!
//! A note holds only as long as the field it is about is what it was when it was made: a change made here wins.

mod contexts;
mod message;
mod note;
mod repair;

use serde::de::Error as _;
use serde_json::{Map, Value, json};

use self::note::Notes;
use super::agent_state::{AgentState, Meta, StateError};
use super::id::Slot;
use super::message::Role;

/// Where all that only AgentScope gives a meaning to is kept.
const KEY: &str = "agentscope";

/// Reads an AgentScope state. What could not be taken over as it was is told by [`repairs`].
pub fn from_agentscope(text: &str) -> Result<AgentState, StateError> {
    let theirs: Map<String, Value> = serde_json::from_str(text)?;
    let user = match theirs.get("user_id") {
        None | Some(Value::Null) => None,
        Some(Value::String(user)) => Some(user.as_str()),
        Some(other) => return Err(unreadable(&format!("user_id is {other} and must be text or null"))),
    };
    let Some(Value::String(session)) = theirs.get("session_id") else {
        return Err(unreadable("session_id is missing; give the session a name"));
    };
    let slot = Slot::new(user, session).map_err(|error| unreadable(&error.to_string()))?;

    let mut context = Vec::new();
    match theirs.get("context") {
        None | Some(Value::Null) => {}
        Some(Value::Array(messages)) => {
            for (index, theirs) in messages.iter().enumerate() {
                let ours = message::import(theirs)
                    .map_err(|why| unreadable(&format!("message {index} of context: {why}")))?;
                context.extend(ours);
            }
        }
        Some(_) => return Err(unreadable("context must be a list of messages")),
    }
    let repairs = repair::pair_up(&mut context);

    let mut state = AgentState {
        shutdown_interrupted: theirs.get("shutdown_interrupted").and_then(Value::as_bool).unwrap_or(false),
        turn_count: context.iter().filter(|message| message.role == Role::Assistant).count() as u64,
        context,
        meta: Meta {
            summary: theirs.get("summary").and_then(Value::as_str).map(str::to_owned),
            permission_context: contexts::PERMISSION.import(theirs.get("permission_context")),
            plan_mode_context: contexts::PLAN_MODE.import(theirs.get("plan_mode_context")),
            tasks_context: contexts::import_tasks(theirs.get("tasks_context")),
            tool_context: contexts::import_tools(theirs.get("tool_context")),
            ..Meta::default()
        },
        ..AgentState::new(&slot)
    };
    if !repairs.is_empty() {
        // As long as nothing was said since, what was added here goes again on the way back.
        let last = state.context.last().map(|message| &message.id);
        Notes::default()
            .with("repairs", json!(repairs))
            .with("last", json!(last))
            .keep_in(&mut state.meta.extra);
    }
    Notes::of(&state.meta.extra).compare(&export(&state), &theirs).keep_in(&mut state.meta.extra);
    Ok(state)
}

/// Writes a state as AgentScope does. It has no place for the free state, the trace, the version and the revision.
pub fn to_agentscope(state: &AgentState) -> String {
    Value::Object(Notes::of(&state.meta.extra).put_back(export(state))).to_string()
}

/// What an import changed to make the transcript one that a model accepts, a sentence each.
pub fn repairs(state: &AgentState) -> Vec<String> {
    let repairs = Notes::of(&state.meta.extra).get("repairs").cloned();
    repairs.and_then(|repairs| serde_json::from_value(repairs).ok()).unwrap_or_default()
}

fn export(state: &AgentState) -> Map<String, Value> {
    let notes = Notes::of(&state.meta.extra);
    let last = state.context.last().map(|message| json!(message.id));
    let untouched = last.is_some() && notes.get("last") == last.as_ref();
    let fields = json!({
        "session_id": state.session_id,
        "user_id": state.user_id,
        "summary": state.meta.summary,
        "context": message::export_all(&state.context, untouched),
        "shutdown_interrupted": state.shutdown_interrupted,
        "permission_context": contexts::PERMISSION.export(&state.meta.permission_context),
        "plan_mode_context": contexts::PLAN_MODE.export(&state.meta.plan_mode_context),
        "tasks_context": contexts::export_tasks(&state.meta.tasks_context),
        "tool_context": contexts::export_tools(&state.meta.tool_context),
    });
    let Value::Object(fields) = fields else { unreachable!("it is written as an object") };
    fields
}

fn unreadable(why: &str) -> StateError {
    StateError::Unreadable(serde_json::Error::custom(format!("not a state of AgentScope: {why}")))
}

#[cfg(test)]
mod tests;
