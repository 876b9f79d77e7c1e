//! A stored message as the Messages API wants it: who speaks, and the blocks. Done once for each message; see
//! [`crate::state::Entry::rendered`].

use std::borrow::Cow;

use bytes::Bytes;
use serde_json::{Value, json};

use super::super::provider::sendable_input;
use super::super::request::{ImageSource, left_out, put};
use crate::state::{Block, Message, Role, ToolResult};
use crate::tools::ToolSpec;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Speaker {
    User,
    Assistant,
}

impl Speaker {
    /// Who spoke last, as a number that can be kept.
    pub(super) fn state(speaking: Option<Self>) -> u8 {
        match speaking {
            None => 0,
            Some(Self::User) => 1,
            Some(Self::Assistant) => 2,
        }
    }

    pub(super) fn of(state: u8) -> Option<Self> {
        match state {
            1 => Some(Self::User),
            2 => Some(Self::Assistant),
            _ => None,
        }
    }

    /// What opens a message of this speaker, and closes the one before it.
    pub(super) const fn turn(self, first: bool) -> &'static [u8] {
        match (self, first) {
            (Self::User, true) => b"{\"role\":\"user\",\"content\":[",
            (Self::User, false) => b"]},{\"role\":\"user\",\"content\":[",
            (Self::Assistant, true) => b"{\"role\":\"assistant\",\"content\":[",
            (Self::Assistant, false) => b"]},{\"role\":\"assistant\",\"content\":[",
        }
    }
}

/// The speaker and its blocks, each with a comma before it; `None` where there is nothing to say.
pub(super) fn parts(rendered: &Bytes) -> Option<(Speaker, Bytes)> {
    let speaker = if rendered.first()? == &b'a' { Speaker::Assistant } else { Speaker::User };
    (rendered.len() > 1).then(|| (speaker, rendered.slice(1..)))
}

pub(super) fn message(message: &Message) -> Bytes {
    let assistant = message.role == Role::Assistant;
    let mut out = vec![if assistant { b'a' } else { b'u' }];
    let said: Vec<Value> = message.content.iter().filter_map(|block| said(block, assistant)).collect();
    // Thoughts alone are no message.
    if said.iter().all(|block| block["type"] == "thinking" || block["type"] == "redacted_thinking") {
        return out.into();
    }
    for block in said {
        out.push(b',');
        put(&mut out, &block);
    }
    out.into()
}

pub(super) fn tool(out: &mut Vec<u8>, tool: &ToolSpec) {
    out.extend_from_slice(b"{\"name\":");
    put(out, &tool.name);
    out.extend_from_slice(b",\"description\":");
    put(out, &tool.description);
    out.extend_from_slice(b",\"input_schema\":");
    put(out, &tool.schema);
    out.push(b'}');
}

fn said(block: &Block, assistant: bool) -> Option<Value> {
    match block {
        Block::Text { text, .. } => speech(text),
        // Only thoughts that bear the provider's own signature are taken back.
        Block::Thinking { thinking, extra } => {
            let signature = extra.get("signature").and_then(Value::as_str).filter(|_| assistant)?;
            Some(json!({"type": "thinking", "thinking": thinking, "signature": signature}))
        }
        Block::ToolUse(call) => Some(json!({
            "type": "tool_use", "id": sendable_id(&call.id), "name": call.name, "input": sendable_input(&call.input),
        })),
        Block::ToolResult(result) => Some(tool_result(result)),
        Block::Image { source, .. } => Some(image(source)),
        Block::Other(fields) => {
            let kind = fields.get("type").and_then(Value::as_str).unwrap_or("unknown");
            let own = match assistant {
                true => {
                    matches!(kind, "redacted_thinking" | "server_tool_use") || kind.ends_with("_tool_result")
                }
                false => matches!(kind, "document" | "search_result"),
            };
            if own { Some(Value::Object(fields.clone())) } else { speech(&left_out(kind)) }
        }
    }
}

/// The API refuses blocks without a visible character.
fn speech(text: &str) -> Option<Value> {
    (!text.trim().is_empty()).then(|| json!({"type": "text", "text": text}))
}

fn tool_result(result: &ToolResult) -> Value {
    let content: Vec<Value> = result.content.iter().filter_map(|block| said(block, false)).collect();
    let mut rendered = json!({"type": "tool_result", "tool_use_id": sendable_id(&result.tool_use_id)});
    if !content.is_empty() {
        rendered["content"] = Value::Array(content);
    }
    if result.is_error {
        rendered["is_error"] = Value::Bool(true);
    }
    rendered
}

fn image(source: &Value) -> Value {
    let source = match ImageSource::of(source) {
        Some(ImageSource::Url(url)) => json!({"type": "url", "url": url}),
        Some(ImageSource::Data { media_type, data }) => {
            json!({"type": "base64", "media_type": media_type, "data": data})
        }
        None => return json!({"type": "text", "text": left_out("image")}),
    };
    json!({"type": "image", "source": source})
}

/// Ids of other providers may hold what this one refuses; a call and its result change in the same way.
fn sendable_id(id: &str) -> Cow<'_, str> {
    let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if !id.is_empty() && id.chars().all(fine) {
        return Cow::Borrowed(id);
    }
    Cow::Owned(format!("t_{}", id.replace(|c| !fine(c), "_")))
}

#[cfg(test)]
// A `json!` is written where it is used.
#[allow(clippy::needless_pass_by_value)]
mod tests {
    use super::*;

    fn sent(stored: Value) -> Option<(Speaker, Value)> {
        let stored: Message = serde_json::from_value(stored).expect("a message");
        let (speaker, blocks) = parts(&message(&stored))?;
        let text = String::from_utf8(blocks.slice(1..).to_vec()).expect("UTF-8");
        Some((speaker, serde_json::from_str(&format!("[{text}]")).expect("JSON")))
    }

    #[test]
    fn thoughts_go_back_only_with_their_signature() {
        let stored = json!({"role": "assistant", "content": [
            {"type": "thinking", "thinking": "signed", "signature": "s=="},
            {"type": "thinking", "thinking": "unsigned"},
            {"type": "redacted_thinking", "data": "xx"},
            {"type": "text", "text": " "},
            {"type": "tool_use", "id": "functions.f:0", "name": "f", "input": "{\"bro"},
        ]});
        let expected = json!([
            {"type": "thinking", "thinking": "signed", "signature": "s=="},
            {"type": "redacted_thinking", "data": "xx"},
            {"type": "tool_use", "id": "t_functions_f_0", "name": "f", "input": {"malformed_arguments": "{\"bro"}},
        ]);
        assert_eq!(sent(stored), Some((Speaker::Assistant, expected)));
        let thoughts = json!({"role": "assistant", "content": [{"type": "thinking", "thinking": "x", "signature": "s"}]});
        assert_eq!(sent(thoughts), None);
    }

    #[test]
    fn tool_results_are_the_user_s_and_carry_images() {
        let stored = json!({"role": "tool", "content": [
            {"type": "tool_result", "toolUseId": "t1", "name": "f", "isError": true, "content": [
                {"type": "text", "text": "see"},
                {"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": "AA"}}]},
            {"type": "tool_result", "toolUseId": "t2", "name": "g", "content": ""},
        ]});
        let expected = json!([
            {"type": "tool_result", "tool_use_id": "t1", "content": [
                {"type": "text", "text": "see"},
                {"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": "AA"}}], "is_error": true},
            {"type": "tool_result", "tool_use_id": "t2"},
        ]);
        assert_eq!(sent(stored), Some((Speaker::User, expected)));
    }
}
