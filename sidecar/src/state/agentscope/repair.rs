//! Makes an imported transcript one in which every tool call has one result.

use serde_json::{Value, json};

use super::KEY;
use super::message::export_block;
use super::note;
use crate::state::message::{Block, Message, Role, ToolResult, ToolUse};

const NO_RESULT: &str =
    "outcome unknown: the conversation was imported from AgentScope, where this tool call had no result";

/// Answers the calls nobody answered, and sets aside what answers no call. Tells each, in a sentence.
pub(super) fn pair_up(context: &mut Vec<Message>) -> Vec<String> {
    let mut repairs = Vec::new();
    let mut open = Vec::<ToolUse>::new();
    let mut paired = Vec::with_capacity(context.len());
    for mut message in std::mem::take(context) {
        if message.role != Role::Tool {
            answer(&mut open, &mut paired, &mut repairs);
        }
        // Results first: a message answers what was asked before it, never its own.
        for block in &mut message.content {
            let Block::ToolResult(result) = block else { continue };
            match open.iter().position(|call| call.id == result.tool_use_id) {
                Some(answered) => {
                    open.remove(answered);
                }
                None => {
                    let id = &result.tool_use_id;
                    repairs.push(format!(
                        "message {:?} has a result for tool call {id:?}, which is not open there; it was set aside",
                        message.id
                    ));
                    *block = set_aside(block);
                }
            }
        }
        for block in &mut message.content {
            let Block::ToolUse(call) = block else { continue };
            if open.iter().any(|open| open.id == call.id) {
                repairs.push(format!(
                    "message {:?} has tool call {:?} a second time; it was set aside",
                    message.id, call.id
                ));
                *block = set_aside(block);
            } else {
                open.push(call.clone());
            }
        }
        paired.push(message);
    }
    answer(&mut open, &mut paired, &mut repairs);
    *context = paired;
    repairs
}

fn answer(open: &mut Vec<ToolUse>, paired: &mut Vec<Message>, repairs: &mut Vec<String>) {
    for call in open.drain(..) {
        repairs.push(format!(
            "tool call {:?} ({}) had no result; it was given one that says its outcome is unknown",
            call.id, call.name
        ));
        let result = ToolResult::new(&call, true, NO_RESULT);
        paired.push(Message { extra: note::added(), ..Message::tool(result) });
    }
}

/// A block that nobody gives a meaning to, and that an export turns back.
fn set_aside(block: &Block) -> Block {
    let mut kept = serde_json::Map::new();
    kept.insert("type".to_owned(), json!(KEY));
    kept.insert("block".to_owned(), export_block(block));
    Block::Other(kept)
}

pub(super) fn was_set_aside(block: &serde_json::Map<String, Value>) -> Option<&Value> {
    block.get("block").filter(|_| block.get("type") == Some(&json!(KEY)))
}
