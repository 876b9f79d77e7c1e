//! A stored message as Chat Completions wants it. Done once for each message; see [`crate::state::Entry::rendered`].

use std::borrow::Cow;

use bytes::Bytes;
use serde_json::{Value, json};

use super::super::provider::sendable_input;
use super::super::request::{ImageSource, left_out, put};
use crate::state::{Block, Message, Role, ToolResult};
use crate::tools::ToolSpec;

/// What is kept of a rendered message: its kind, how long `messages` is, `messages`, `after`.
const HEADER: usize = 5;

pub(super) struct Parts {
    pub(super) is_tool: bool,
    /// Each with a comma before it; empty where there is nothing to say.
    pub(super) messages: Bytes,
    /// To be said after the last tool result of this step.
    pub(super) after: Bytes,
}

pub(super) fn parts(rendered: &Bytes) -> Parts {
    let length =
        rendered.get(1..HEADER).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_le_bytes);
    let middle = (HEADER + length as usize).min(rendered.len());
    Parts {
        is_tool: rendered.first() == Some(&b't'),
        messages: rendered.slice(HEADER.min(middle)..middle),
        after: rendered.slice(middle..),
    }
}

pub(super) fn message(message: &Message) -> Bytes {
    let mut out = vec![0; HEADER];
    let mut after = Vec::new();
    out[0] = if message.role == Role::Tool { b't' } else { b'm' };
    match message.role {
        Role::System => spoken(&mut out, "system", message),
        Role::User => spoken(&mut out, "user", message),
        Role::Assistant => assistant(&mut out, message),
        Role::Tool => {
            message.tool_results().for_each(|result| tool_result(&mut out, &mut after, result));
        }
    }
    let length = u32::try_from(out.len() - HEADER).unwrap_or(u32::MAX);
    out[1..HEADER].copy_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&after);
    out.into()
}

pub(super) fn tool(out: &mut Vec<u8>, tool: &ToolSpec) {
    out.extend_from_slice(b"{\"type\":\"function\",\"function\":{\"name\":");
    put(out, &tool.name);
    out.extend_from_slice(b",\"description\":");
    put(out, &tool.description);
    out.extend_from_slice(b",\"parameters\":");
    put(out, &tool.schema);
    out.extend_from_slice(b"}}");
}

fn open(out: &mut Vec<u8>, role: &str) {
    out.extend_from_slice(b",{\"role\":\"");
    out.extend_from_slice(role.as_bytes());
    out.push(b'"');
}

fn spoken(out: &mut Vec<u8>, role: &str, message: &Message) {
    if message.content.is_empty() {
        return;
    }
    open(out, role);
    if let Some(name) = message.name.as_deref().filter(|name| is_plain_name(name)) {
        out.extend_from_slice(b",\"name\":");
        put(out, name);
    }
    out.extend_from_slice(b",\"content\":");
    // A lone text as a string: every server takes it, also those that know no lists.
    match message.content.as_slice() {
        [Block::Text { text, .. }] => put(out, text),
        blocks => put(out, &blocks.iter().map(part).collect::<Vec<_>>()),
    }
    out.push(b'}');
}

fn part(block: &Block) -> Value {
    match block {
        Block::Text { text, .. } | Block::Thinking { thinking: text, .. } => {
            json!({"type": "text", "text": text})
        }
        Block::Image { source, .. } => image(source),
        Block::Other(fields) => match fields.get("type").and_then(Value::as_str) {
            // Blocks that are this protocol's own.
            Some("image_url" | "input_audio" | "file") => Value::Object(fields.clone()),
            kind => json!({"type": "text", "text": left_out(kind.unwrap_or("unknown"))}),
        },
        Block::ToolUse(_) => json!({"type": "text", "text": left_out("tool_use")}),
        Block::ToolResult(result) => json!({"type": "text", "text": result.text()}),
    }
}

fn image(source: &Value) -> Value {
    let url = match ImageSource::of(source) {
        Some(ImageSource::Url(url)) => Cow::Borrowed(url),
        Some(ImageSource::Data { media_type, data }) => {
            Cow::Owned(format!("data:{media_type};base64,{data}"))
        }
        None => return json!({"type": "text", "text": left_out("image")}),
    };
    json!({"type": "image_url", "image_url": {"url": url}})
}

/// Thinking stays behind: the protocol has no place for it.
fn assistant(out: &mut Vec<u8>, message: &Message) {
    let text = message.text();
    let mut calls = message.tool_uses().peekable();
    if text.is_empty() && calls.peek().is_none() {
        return;
    }
    open(out, "assistant");
    out.extend_from_slice(b",\"content\":");
    if text.is_empty() {
        out.extend_from_slice(b"null");
    } else {
        put(out, &text);
    }
    if calls.peek().is_some() {
        let calls: Vec<Value> = calls
            .map(|call| {
                let arguments = sendable_input(&call.input).to_string();
                json!({"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}})
            })
            .collect();
        out.extend_from_slice(b",\"tool_calls\":");
        put(out, &calls);
    }
    out.push(b'}');
}

fn tool_result(out: &mut Vec<u8>, after: &mut Vec<u8>, result: &ToolResult) {
    let mut text = String::new();
    let mut images = Vec::new();
    for block in &result.content {
        let said = match block {
            Block::Text { text, .. } => Cow::Borrowed(text.as_str()),
            Block::Image { source, .. } => {
                images.push(image(source));
                Cow::Borrowed("[an image, shown after the tool results]")
            }
            Block::Other(fields) => {
                Cow::Owned(left_out(fields.get("type").and_then(Value::as_str).unwrap_or("unknown")))
            }
            _ => continue,
        };
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(&said);
    }
    if result.is_error && !text.to_ascii_lowercase().starts_with("error") {
        text.insert_str(0, "Error: ");
    }
    open(out, "tool");
    out.extend_from_slice(b",\"tool_call_id\":");
    put(out, &result.tool_use_id);
    out.extend_from_slice(b",\"content\":");
    put(out, &text);
    out.push(b'}');
    if !images.is_empty() {
        let caption = format!("Images returned by the tool {} (call {}):", result.name, result.tool_use_id);
        images.insert(0, json!({"type": "text", "text": caption}));
        open(after, "user");
        after.extend_from_slice(b",\"content\":");
        put(after, &images);
        after.push(b'}');
    }
}

fn is_plain_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
}

#[cfg(test)]
// A `json!` is written where it is used.
#[allow(clippy::needless_pass_by_value)]
mod tests {
    use super::*;

    fn sent(stored: Value) -> (Value, Value) {
        let stored: Message = serde_json::from_value(stored).expect("a message");
        let parts = parts(&message(&stored));
        let list = |bytes: &Bytes| {
            let text = String::from_utf8(bytes.to_vec()).expect("UTF-8");
            serde_json::from_str(&format!("[{}]", text.trim_start_matches(','))).expect("JSON")
        };
        (list(&parts.messages), list(&parts.after))
    }

    #[test]
    fn a_lone_text_is_a_string_and_more_is_a_list() {
        let (messages, _) = sent(json!({"role": "user", "content": "hi \"you\"", "name": "ann"}));
        assert_eq!(messages, json!([{"role": "user", "name": "ann", "content": "hi \"you\""}]));
        let (messages, _) = sent(json!({"role": "user", "name": "not plain", "content": [
            {"type": "text", "text": "what is this?"},
            {"type": "image", "source": {"type": "base64", "mediaType": "image/png", "data": "AAAA"}},
            {"type": "image", "source": {"type": "url", "url": "http://x/y.png"}},
            {"type": "hologram"},
        ]}));
        assert_eq!(
            messages,
            json!([{"role": "user", "content": [
                {"type": "text", "text": "what is this?"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
                {"type": "image_url", "image_url": {"url": "http://x/y.png"}},
                {"type": "text", "text": left_out("hologram")},
            ]}])
        );
    }

    #[test]
    fn tool_calls_and_results_keep_their_ids() {
        let (messages, _) = sent(json!({"role": "assistant", "content": [
            {"type": "thinking", "thinking": "hm"},
            {"type": "tool_use", "id": "t1", "name": "f", "input": {"n": 1}},
            {"type": "tool_use", "id": "t2", "name": "g", "input": "{\"bro"},
        ]}));
        assert_eq!(
            messages,
            json!([{"role": "assistant", "content": null, "tool_calls": [
                {"id": "t1", "type": "function", "function": {"name": "f", "arguments": "{\"n\":1}"}},
                {"id": "t2", "type": "function", "function": {"name": "g", "arguments": "{\"malformed_arguments\":\"{\\\"bro\"}"}},
            ]}])
        );
        let (messages, after) = sent(json!({"role": "tool", "content": [
            {"type": "tool_result", "toolUseId": "t1", "name": "f", "isError": true, "content": "no"},
            {"type": "tool_result", "toolUseId": "t2", "name": "g", "content": [
                {"type": "text", "text": "see"}, {"type": "image", "source": {"type": "url", "url": "http://x"}}]},
        ]}));
        assert_eq!(
            messages,
            json!([
                {"role": "tool", "tool_call_id": "t1", "content": "Error: no"},
                {"role": "tool", "tool_call_id": "t2", "content": "see\n[an image, shown after the tool results]"},
            ])
        );
        assert_eq!(after[0]["content"][1], json!({"type": "image_url", "image_url": {"url": "http://x"}}));
    }

    #[test]
    fn an_answer_that_said_nothing_is_not_sent() {
        assert_eq!(sent(json!({"role": "assistant", "content": []})).0, json!([]));
        assert_eq!(
            sent(json!({"role": "assistant", "content": [{"type": "thinking", "thinking": "…"}]})).0,
            json!([])
        );
    }
}
