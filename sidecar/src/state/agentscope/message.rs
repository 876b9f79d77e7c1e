//! Messages and blocks.

use serde_json::{Map, Value, json};

use super::KEY;
use super::note::{self, Notes, is_added, others};
use super::repair::was_set_aside;
use crate::state::message::{Block, Message, Role, ToolResult, ToolUse, Usage, fresh_id};

/// One message of theirs as one or more of ours: results stand apart from what was said.
pub(super) fn import(theirs: &Value) -> Result<Vec<Message>, String> {
    let theirs = theirs.as_object().ok_or("it must be an object")?;
    let role = match theirs.get("role").and_then(Value::as_str).map(str::to_ascii_uppercase).as_deref() {
        Some("USER") => Role::User,
        Some("ASSISTANT") => Role::Assistant,
        Some("SYSTEM") => Role::System,
        Some("TOOL") => Role::Tool,
        _ => return Err("its role must be USER, ASSISTANT, SYSTEM or TOOL".to_owned()),
    };
    let blocks = match theirs.get("content") {
        None | Some(Value::Null) => Vec::new(),
        Some(content) => import_blocks(content)?,
    };
    let text = |field: &str| theirs.get(field).and_then(Value::as_str).map(str::to_owned);
    let mut first = Message {
        id: text("id").unwrap_or_else(fresh_id),
        role,
        content: Vec::new(),
        name: text("name"),
        timestamp: text("timestamp"),
        usage: theirs.get("usage").and_then(|usage| serde_json::from_value::<Usage>(usage.clone()).ok()),
        interrupted: false,
        extra: unknown(theirs, &["id", "role", "content", "name", "timestamp", "usage"]),
    };
    if let Some(Value::Object(metadata)) = first.extra.get_mut("metadata") {
        first.interrupted = metadata.shift_remove(INTERRUPTED) == Some(json!(true));
        if metadata.is_empty() {
            first.extra.shift_remove("metadata");
        }
    }
    let whole = Message { content: blocks, ..first.clone() };
    Notes::default().compare(&export(&whole), theirs).keep_in(&mut first.extra);
    Ok(split(first, whole.content))
}

/// What AgentScope has no field for goes into its free metadata.
const INTERRUPTED: &str = "holdfast.interrupted";

/// Fields that mean nothing here, kept as they are.
fn unknown(theirs: &Map<String, Value>, known: &[&str]) -> Map<String, Value> {
    let unknown = theirs.iter().filter(|(name, _)| *name != KEY && !known.contains(&name.as_str()));
    unknown.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Cuts a message before and after its results, unless it is a tool's. The first piece keeps what is noted about all.
fn split(first: Message, blocks: Vec<Block>) -> Vec<Message> {
    let role = first.role;
    let mut done = Vec::new();
    let mut piece = first;
    for block in blocks {
        let wanted = if matches!(block, Block::ToolResult(_)) { Role::Tool } else { role };
        if piece.role != wanted && role != Role::Tool {
            if piece.content.is_empty() {
                flag(&mut piece, "role", json!(role_name(role)));
                piece.role = wanted;
            } else {
                let mut next = Message::new(wanted, Vec::new());
                flag(&mut next, "continues", json!(true));
                done.push(std::mem::replace(&mut piece, next));
            }
        }
        piece.content.push(block);
    }
    done.push(piece);
    done
}

fn flag(message: &mut Message, name: &str, value: Value) {
    Notes::of(&message.extra).with(name, value).keep_in(&mut message.extra);
}

const fn role_name(role: Role) -> &'static str {
    match role {
        Role::User => "USER",
        Role::Assistant => "ASSISTANT",
        Role::System => "SYSTEM",
        Role::Tool => "TOOL",
    }
}

/// All messages, pieces joined again. What an import added is left out as long as nothing has come after it.
pub(super) fn export_all(context: &[Message], without_added: bool) -> Vec<Value> {
    let mut exported: Vec<(&Message, Vec<Block>)> = Vec::new();
    for message in context {
        if without_added && is_added(&message.extra) {
            continue;
        }
        match exported.last_mut() {
            Some((_, content)) if Notes::of(&message.extra).is("continues") => {
                content.extend(message.content.iter().cloned());
            }
            _ => exported.push((message, message.content.clone())),
        }
    }
    exported
        .into_iter()
        .map(|(message, content)| {
            let notes = Notes::of(&message.extra);
            Value::Object(notes.put_back(export(&Message { content, ..message.clone() })))
        })
        .collect()
}

fn export(message: &Message) -> Map<String, Value> {
    let role =
        Notes::of(&message.extra).get("role").cloned().unwrap_or_else(|| json!(role_name(message.role)));
    let mut fields = Map::new();
    let mut put = |name: &str, value: Value| fields.insert(name.to_owned(), value);
    put("id", json!(message.id));
    if let Some(name) = &message.name {
        put("name", json!(name));
    }
    put("role", role);
    put("content", message.content.iter().filter(|block| !is_explanation(block)).map(export_block).collect());
    put("metadata", if message.interrupted { json!({INTERRUPTED: true}) } else { json!({}) });
    if let Some(timestamp) = &message.timestamp {
        put("timestamp", json!(timestamp));
    }
    if let Some(usage) = &message.usage {
        let Usage { input_tokens, output_tokens, cached_tokens } = usage;
        put(
            "usage",
            json!({"inputTokens": input_tokens, "outputTokens": output_tokens, "cachedTokens": cached_tokens}),
        );
    }
    let mut all = others(&message.extra);
    if let (Some(Value::Object(metadata)), true) = (all.get_mut("metadata"), message.interrupted) {
        metadata.insert(INTERRUPTED.to_owned(), json!(true));
    }
    fields.extend(all);
    fields
}

fn import_blocks(content: &Value) -> Result<Vec<Block>, String> {
    match content {
        Value::String(text) => Ok(vec![Block::text(text)]),
        Value::Array(blocks) => {
            let numbered = blocks.iter().enumerate();
            numbered
                .map(|(n, block)| import_block(block).map_err(|why| format!("block {n}: {why}")))
                .collect()
        }
        _ => Err("content must be text or a list of blocks".to_owned()),
    }
}

fn import_block(theirs: &Value) -> Result<Block, String> {
    let fields = theirs.as_object().ok_or("it must be an object")?;
    let kind = fields.get("type").and_then(Value::as_str).ok_or("its type is missing")?;
    let text = |field: &str| {
        fields
            .get(field)
            .and_then(Value::as_str)
            .map(str::to_owned)
            .ok_or(format!("a {kind} block needs text in {field:?}"))
    };
    let mut block = match kind {
        "text" => Block::Text { text: text("text")?, extra: unknown(fields, &["type", "text"]) },
        "thinking" => {
            Block::Thinking { thinking: text("thinking")?, extra: unknown(fields, &["type", "thinking"]) }
        }
        "image" => {
            let source = fields.get("source").cloned().ok_or("an image block needs a source")?;
            Block::Image { source, extra: unknown(fields, &["type", "source"]) }
        }
        "tool_use" => Block::ToolUse(ToolUse {
            id: text("id")?,
            name: text("name")?,
            input: fields.get("input").cloned().unwrap_or_default(),
            extra: unknown(fields, &["type", "id", "name", "input", "state"]),
        }),
        "tool_result" => {
            let state = fields.get("state").and_then(Value::as_str).unwrap_or(SUCCESS);
            let mut content = fields.get("output").map_or_else(|| Ok(Vec::new()), import_output)?;
            if content.is_empty() && state != SUCCESS {
                content.push(Block::Text { text: explanation(state).to_owned(), extra: note::added() });
            }
            Block::ToolResult(ToolResult {
                tool_use_id: text("id")?,
                name: text("name").unwrap_or_default(),
                is_error: state != SUCCESS,
                content,
                extra: unknown(fields, &["type", "id", "name", "output", "state"]),
            })
        }
        _ => return Ok(Block::Other(fields.clone())),
    };
    let Value::Object(exported) = export_block(&block) else { return Ok(block) };
    if let Some(extra) = extra_of(&mut block) {
        Notes::default().compare(&exported, fields).keep_in(extra);
    }
    Ok(block)
}

fn import_output(output: &Value) -> Result<Vec<Block>, String> {
    if output.is_null() { Ok(Vec::new()) } else { import_blocks(output) }
}

const SUCCESS: &str = "success";

/// What a model reads where a tool that did not succeed left nothing to read.
fn explanation(state: &str) -> &'static str {
    match state {
        "interrupted" => "interrupted: the tool was stopped before it finished",
        "denied" => "denied: this tool call was not allowed",
        "running" => "outcome unknown: the agent was interrupted while this tool ran",
        _ => "the tool failed without a message",
    }
}

fn is_explanation(block: &Block) -> bool {
    matches!(block, Block::Text { extra, .. } if is_added(extra))
}

/// A block of ours as one of theirs, with what was noted about it.
pub(super) fn export_block(block: &Block) -> Value {
    let (mut fields, extra) = match block {
        Block::Text { text, extra } => (json!({"type": "text", "text": text}), extra),
        Block::Thinking { thinking, extra } => (json!({"type": "thinking", "thinking": thinking}), extra),
        Block::Image { source, extra } => (json!({"type": "image", "source": source}), extra),
        Block::ToolUse(ToolUse { id, name, input, extra }) => {
            // In a valid transcript every call has been answered.
            (json!({"type": "tool_use", "id": id, "name": name, "input": input, "state": "finished"}), extra)
        }
        Block::ToolResult(ToolResult { tool_use_id, name, is_error, content, extra }) => {
            let output: Vec<Value> =
                content.iter().filter(|block| !is_explanation(block)).map(export_block).collect();
            let state = if *is_error { "error" } else { SUCCESS };
            (
                json!({"type": "tool_result", "id": tool_use_id, "name": name, "output": output, "state": state}),
                extra,
            )
        }
        Block::Other(fields) => {
            return was_set_aside(fields).cloned().unwrap_or_else(|| Value::Object(fields.clone()));
        }
    };
    let Some(fields) = fields.as_object_mut() else { return fields };
    fields.extend(others(extra));
    Value::Object(Notes::of(extra).put_back(std::mem::take(fields)))
}

fn extra_of(block: &mut Block) -> Option<&mut Map<String, Value>> {
    match block {
        Block::Text { extra, .. } | Block::Thinking { extra, .. } | Block::Image { extra, .. } => Some(extra),
        Block::ToolUse(ToolUse { extra, .. }) | Block::ToolResult(ToolResult { extra, .. }) => Some(extra),
        Block::Other(_) => None,
    }
}
