//! Promise I7 as a check: every tool call is answered by exactly one result, after it and before the next model reply.

use std::collections::BTreeSet;

use super::message::{Message, Role};

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PairingError {
    #[error(
        "message {index}: tool call {id:?} has no result before the next message; add a tool message for it"
    )]
    Unanswered { index: usize, id: String },
    #[error(
        "message {index}: the result for {id:?} answers no open tool call; remove it or add the call before it"
    )]
    Unasked { index: usize, id: String },
    #[error("message {index}: tool call id {id:?} is used twice in one message; rename one")]
    Repeated { index: usize, id: String },
}

/// Checks a whole history, or one that starts at a turn boundary.
pub fn check_pairing<'a>(messages: impl IntoIterator<Item = &'a Message>) -> Result<(), PairingError> {
    let mut open = BTreeSet::<String>::new();
    let mut last = 0;
    for (index, message) in messages.into_iter().enumerate() {
        last = index;
        for result in message.tool_results() {
            if !open.remove(&result.tool_use_id) {
                return Err(PairingError::Unasked { index, id: result.tool_use_id.clone() });
            }
        }
        if message.role != Role::Tool
            && let Some(id) = open.pop_first()
        {
            return Err(PairingError::Unanswered { index: index.saturating_sub(1), id });
        }
        for tool_use in message.tool_uses() {
            if !open.insert(tool_use.id.clone()) {
                return Err(PairingError::Repeated { index, id: tool_use.id.clone() });
            }
        }
    }
    match open.pop_first() {
        Some(id) => Err(PairingError::Unanswered { index: last, id }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{Block, ToolResult, ToolUse};
    use serde_json::{Map, Value};

    fn call(id: &str) -> ToolUse {
        ToolUse { id: id.into(), name: "f".into(), input: Value::Null, extra: Map::new() }
    }

    fn asks(ids: &[&str]) -> Message {
        Message::assistant(ids.iter().map(|id| Block::ToolUse(call(id))).collect())
    }

    fn answers(id: &str) -> Message {
        Message::tool(ToolResult::new(&call(id), false, "ok"))
    }

    #[test]
    fn a_call_and_its_result_pair_in_any_order_within_the_step() {
        let history =
            [Message::user("go"), asks(&["a", "b"]), answers("b"), answers("a"), Message::assistant(vec![])];
        assert_eq!(check_pairing(&history), Ok(()));
    }

    #[test]
    fn missing_unasked_and_repeated_are_told_apart() {
        let missing = [asks(&["a"]), Message::user("well?")];
        assert_eq!(check_pairing(&missing), Err(PairingError::Unanswered { index: 0, id: "a".into() }));
        let at_end = [Message::user("go"), asks(&["a"])];
        assert_eq!(check_pairing(&at_end), Err(PairingError::Unanswered { index: 1, id: "a".into() }));
        let twice = [asks(&["a"]), answers("a"), answers("a")];
        assert_eq!(check_pairing(&twice), Err(PairingError::Unasked { index: 2, id: "a".into() }));
        let repeated = [asks(&["a", "a"])];
        assert_eq!(check_pairing(&repeated), Err(PairingError::Repeated { index: 0, id: "a".into() }));
    }
}
