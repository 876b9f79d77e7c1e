//! Messages and the typed blocks in them. Fields and block types this version does not know are kept as they are.

use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};

use super::read::text_or_blocks;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    System,
    User,
    Assistant,
    Tool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    #[serde(default)]
    pub input_tokens: u64,
    #[serde(default)]
    pub output_tokens: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cached_tokens: u64,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

fn is_false(b: &bool) -> bool {
    !*b
}

/// Read by [`super::read`].
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Message {
    /// Random, and never used twice: the hash of a history's last message tells two histories apart.
    pub id: String,
    pub role: Role,
    pub content: Vec<Block>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// The model was stopped while it wrote this; the text ends where it was stopped.
    #[serde(skip_serializing_if = "is_false")]
    pub interrupted: bool,
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

const STOP_REASON: &str = "stopReason";
const MODEL: &str = "model";

impl Message {
    pub fn new(role: Role, content: Vec<Block>) -> Self {
        let extra = Map::new();
        Self {
            id: fresh_id(),
            role,
            content,
            name: None,
            timestamp: None,
            usage: None,
            interrupted: false,
            extra,
        }
    }

    pub fn user(text: impl Into<String>) -> Self {
        Self::new(Role::User, vec![Block::text(text)])
    }

    pub fn assistant(content: Vec<Block>) -> Self {
        Self::new(Role::Assistant, content)
    }

    pub fn tool(result: ToolResult) -> Self {
        Self::new(Role::Tool, vec![Block::ToolResult(result)])
    }

    /// The text of all text blocks, joined.
    pub fn text(&self) -> String {
        self.content.iter().filter_map(Block::as_text).collect()
    }

    /// Why the model stopped before all was said; `None` where it was.
    pub fn stop_reason(&self) -> Option<&str> {
        self.extra.get(STOP_REASON).and_then(Value::as_str)
    }

    pub fn set_stop_reason(&mut self, reason: Option<&str>) {
        self.set(STOP_REASON, reason);
    }

    /// The model that answered, by its provider's word; set only where it is another than the one that was asked.
    pub fn set_model(&mut self, model: Option<&str>) {
        self.set(MODEL, model);
    }

    fn set(&mut self, field: &str, value: Option<&str>) {
        match value {
            Some(value) => drop(self.extra.insert(field.to_owned(), value.into())),
            None => drop(self.extra.shift_remove(field)),
        }
    }

    pub fn tool_uses(&self) -> impl Iterator<Item = &ToolUse> {
        self.content.iter().filter_map(|block| match block {
            Block::ToolUse(tool_use) => Some(tool_use),
            _ => None,
        })
    }

    pub fn tool_results(&self) -> impl Iterator<Item = &ToolResult> {
        self.content.iter().filter_map(|block| match block {
            Block::ToolResult(result) => Some(result),
            _ => None,
        })
    }
}

/// 96 random bits, in hex: short enough to read, long enough never to meet again.
pub(crate) fn fresh_id() -> String {
    use rand::RngCore;
    let mut bytes = [0u8; 12];
    rand::rng().fill_bytes(&mut bytes);
    let mut id = String::with_capacity(25);
    id.push('m');
    for byte in bytes {
        for digit in [byte >> 4, byte & 15] {
            id.push(char::from_digit(u32::from(digit), 16).unwrap_or('0'));
        }
    }
    id
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolUse {
    pub id: String,
    pub name: String,
    #[serde(default)]
    pub input: Value,
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolResult {
    pub tool_use_id: String,
    #[serde(default)]
    pub name: String,
    #[serde(default)]
    pub is_error: bool,
    #[serde(deserialize_with = "text_or_blocks")]
    pub content: Vec<Block>,
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl ToolResult {
    pub fn new(tool_use: &ToolUse, is_error: bool, text: impl Into<String>) -> Self {
        Self {
            tool_use_id: tool_use.id.clone(),
            name: tool_use.name.clone(),
            is_error,
            content: vec![Block::text(text)],
            extra: Map::new(),
        }
    }

    pub fn text(&self) -> String {
        self.content.iter().filter_map(Block::as_text).collect()
    }
}

/// One typed piece of a message. On the wire `{"type": "...", ...}`.
#[derive(Debug, Clone, PartialEq)]
pub enum Block {
    Text {
        text: String,
        extra: Map<String, Value>,
    },
    Thinking {
        thinking: String,
        extra: Map<String, Value>,
    },
    ToolUse(ToolUse),
    ToolResult(ToolResult),
    /// `source` is `{"type":"url",…}` or `{"type":"base64",…}`.
    Image {
        source: Value,
        extra: Map<String, Value>,
    },
    /// A block of a type this version gives no meaning to (audio, video, hint, data, or one yet to be invented).
    Other(Map<String, Value>),
}

impl Block {
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into(), extra: Map::new() }
    }

    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text { text, .. } => Some(text),
            _ => None,
        }
    }
}

#[derive(Serialize)]
struct Tagged<'a, T: Serialize> {
    r#type: &'static str,
    #[serde(flatten)]
    fields: &'a T,
}

#[derive(Serialize)]
struct TextRef<'a> {
    text: &'a str,
    #[serde(flatten)]
    extra: &'a Map<String, Value>,
}

#[derive(Serialize)]
struct ThinkingRef<'a> {
    thinking: &'a str,
    #[serde(flatten)]
    extra: &'a Map<String, Value>,
}

#[derive(Serialize)]
struct ImageRef<'a> {
    source: &'a Value,
    #[serde(flatten)]
    extra: &'a Map<String, Value>,
}

impl Serialize for Block {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text { text, extra } => {
                Tagged { r#type: "text", fields: &TextRef { text, extra } }.serialize(serializer)
            }
            Self::Thinking { thinking, extra } => {
                Tagged { r#type: "thinking", fields: &ThinkingRef { thinking, extra } }.serialize(serializer)
            }
            Self::ToolUse(tool_use) => Tagged { r#type: "tool_use", fields: tool_use }.serialize(serializer),
            Self::ToolResult(result) => {
                Tagged { r#type: "tool_result", fields: result }.serialize(serializer)
            }
            Self::Image { source, extra } => {
                Tagged { r#type: "image", fields: &ImageRef { source, extra } }.serialize(serializer)
            }
            Self::Other(fields) => fields.serialize(serializer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_this_version_does_not_know_survives_a_read_and_a_write() {
        let newer = json!({
            "id": "m1", "role": "assistant", "mood": "sunny",
            "content": [
                {"type": "text", "text": "hi", "citations": [1]},
                {"type": "hologram", "depth": 3},
                {"type": "tool_use", "id": "t1", "name": "f", "input": {"n": 12345678901234567890u64}, "state": "asking"},
            ],
        });
        let message: Message = serde_json::from_value(newer.clone()).expect("parses");
        assert_eq!(serde_json::to_value(&message).expect("writes"), newer);
    }

    #[test]
    fn a_string_is_short_for_one_text_block() {
        let message: Message =
            serde_json::from_value(json!({"role": "user", "content": "hello"})).expect("parses");
        assert_eq!(message.content, vec![Block::text("hello")]);
        assert_eq!(message.id.len(), 25);
    }

    #[test]
    fn a_malformed_known_block_is_an_error_and_not_an_unknown_block() {
        let error = serde_json::from_value::<Message>(json!({"role": "user", "content": [{"type": "text"}]}))
            .expect_err("text is missing");
        assert!(error.to_string().contains("a text block is not well-formed"), "{error}");
    }
}
