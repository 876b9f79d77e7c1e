//! Messages read from JSON. Written by hand for what every call does many times: a history of a thousand messages is read
//! where it enters a replica.

use std::fmt;

use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::message::{Block, Message, Usage, fresh_id};

#[derive(Deserialize)]
struct ThinkingFields {
    thinking: String,
    #[serde(flatten)]
    extra: Map<String, Value>,
}

#[derive(Deserialize)]
struct TextFields {
    text: String,
    #[serde(flatten)]
    extra: Map<String, Value>,
}

#[derive(Deserialize)]
struct ImageFields {
    source: Value,
    #[serde(flatten)]
    extra: Map<String, Value>,
}

/// A field's name: one of ours, without a copy of it, or another.
enum Key {
    Known(usize),
    Other(String),
}

struct KeyOf<const N: usize>(&'static [&'static str; N]);

impl<'de, const N: usize> serde::de::DeserializeSeed<'de> for KeyOf<N> {
    type Value = Key;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Key, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<const N: usize> Visitor<'_> for KeyOf<N> {
    type Value = Key;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a field")
    }
    fn visit_str<E>(self, name: &str) -> Result<Key, E> {
        let known = self.0.iter().position(|known| *known == name);
        Ok(known.map_or_else(|| Key::Other(name.to_owned()), Key::Known))
    }
}

const FIELDS: [&str; 7] = ["id", "role", "content", "name", "timestamp", "usage", "interrupted"];

impl<'de> Deserialize<'de> for Message {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = Message;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a message")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Message, A::Error> {
                let (mut id, mut role, mut content, mut interrupted) = (None, None, None, None);
                let (mut name, mut timestamp, mut usage) = (None, None, None);
                let mut extra = Map::new();
                while let Some(key) = map.next_key_seed(KeyOf(&FIELDS))? {
                    match key {
                        Key::Known(0) => once(&mut id, "id", map.next_value()?)?,
                        Key::Known(1) => once(&mut role, "role", map.next_value()?)?,
                        Key::Known(2) => once(&mut content, "content", map.next_value::<Content>()?.0)?,
                        Key::Known(3) => once(&mut name, "name", map.next_value::<Option<String>>()?)?,
                        Key::Known(4) => {
                            once(&mut timestamp, "timestamp", map.next_value::<Option<String>>()?)?;
                        }
                        Key::Known(5) => once(&mut usage, "usage", map.next_value::<Option<Usage>>()?)?,
                        Key::Known(_) => once(&mut interrupted, "interrupted", map.next_value()?)?,
                        Key::Other(field) => drop(extra.insert(field, map.next_value()?)),
                    }
                }
                Ok(Message {
                    id: id.unwrap_or_else(fresh_id),
                    role: role.ok_or_else(|| A::Error::missing_field("role"))?,
                    content: content.ok_or_else(|| A::Error::missing_field("content"))?,
                    name: name.flatten(),
                    timestamp: timestamp.flatten(),
                    usage: usage.flatten(),
                    interrupted: interrupted.unwrap_or_default(),
                    extra,
                })
            }
        }
        deserializer.deserialize_map(Fields)
    }
}

fn once<T, E: Error>(field: &mut Option<T>, name: &'static str, value: T) -> Result<(), E> {
    match field.replace(value) {
        None => Ok(()),
        Some(_) => Err(E::duplicate_field(name)),
    }
}

impl<'de> Deserialize<'de> for Block {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = Block;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Block, A::Error> {
                let mut fields = Map::new();
                // As they are nearly always written: `{"type":"text","text":"…"}`.
                let mut text = None;
                let mut plain = false;
                while let Some(key) = map.next_key_seed(KeyOf(&["type", "text"]))? {
                    let value: Value = map.next_value()?;
                    match (key, value) {
                        (Key::Known(0), Value::String(kind))
                            if kind == "text" && fields.is_empty() && !plain =>
                        {
                            plain = true;
                        }
                        (Key::Known(1), Value::String(said)) if plain && text.is_none() => text = Some(said),
                        (key, value) => {
                            let name = match key {
                                Key::Known(0) => "type".to_owned(),
                                Key::Known(_) => "text".to_owned(),
                                Key::Other(name) => name,
                            };
                            fields.insert(name, value);
                        }
                    }
                }
                match text {
                    Some(text) if !fields.contains_key("type") && !fields.contains_key("text") => {
                        Ok(Block::Text { text, extra: fields })
                    }
                    text => {
                        // The same field twice: the last one counts.
                        if plain {
                            fields.entry("type").or_insert_with(|| "text".into());
                        }
                        if let Some(text) = text {
                            fields.entry("text").or_insert_with(|| text.into());
                        }
                        of_fields(fields).map_err(A::Error::custom)
                    }
                }
            }
        }
        deserializer.deserialize_map(Fields)
    }
}

fn of_fields(mut fields: Map<String, Value>) -> Result<Block, String> {
    let Some(Value::String(kind)) = fields.get("type").cloned() else {
        return Err("a content block needs a \"type\" (text, image, tool_use, tool_result, …)".to_owned());
    };
    if !matches!(kind.as_str(), "text" | "thinking" | "tool_use" | "tool_result" | "image") {
        return Ok(Block::Other(fields));
    }
    fields.shift_remove("type");
    let value = Value::Object(fields);
    let block = match kind.as_str() {
        "text" => serde_json::from_value(value).map(|TextFields { text, extra }| Block::Text { text, extra }),
        "thinking" => serde_json::from_value(value)
            .map(|ThinkingFields { thinking, extra }| Block::Thinking { thinking, extra }),
        "tool_use" => serde_json::from_value(value).map(Block::ToolUse),
        "tool_result" => serde_json::from_value(value).map(Block::ToolResult),
        _ => {
            serde_json::from_value(value).map(|ImageFields { source, extra }| Block::Image { source, extra })
        }
    };
    block.map_err(|error| format!("a {kind} block is not well-formed: {error}"))
}

struct Content(Vec<Block>);

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text_or_blocks(deserializer).map(Self)
    }
}

/// `"content": "hello"` is short for one text block.
pub(super) fn text_or_blocks<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Block>, D::Error> {
    struct Said;
    impl<'de> Visitor<'de> for Said {
        type Value = Vec<Block>;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a string or a list of content blocks")
        }
        fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
            Ok(vec![Block::text(text)])
        }
        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
            let mut blocks = Vec::with_capacity(seq.size_hint().unwrap_or(1));
            while let Some(block) = seq.next_element()? {
                blocks.push(block);
            }
            Ok(blocks)
        }
    }
    deserializer.deserialize_any(Said)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(text: &str) -> Result<Block, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    #[test]
    fn a_text_block_is_the_same_in_whatever_order_it_is_written() {
        let extra = Map::from_iter([("citations".to_owned(), json!([1]))]);
        let block = Block::Text { text: "hi".into(), extra };
        for text in [
            r#"{"type":"text","text":"hi","citations":[1]}"#,
            r#"{"citations":[1],"type":"text","text":"hi"}"#,
            r#"{"text":"hi","citations":[1],"type":"text"}"#,
            r#"{"type":"text","text":"no","citations":[1],"text":"hi"}"#,
        ] {
            assert_eq!(read(text).expect(text), block, "{text}");
        }
    }

    #[test]
    fn what_is_no_block_says_why() {
        for (text, why) in [
            (r#"{}"#, "needs a \"type\""),
            (r#"{"type":5}"#, "needs a \"type\""),
            (r#"{"type":"text"}"#, "a text block is not well-formed: missing field `text`"),
            (r#"{"type":"text","text":5}"#, "a text block is not well-formed: invalid type"),
            (r#""hi""#, "expected a map"),
        ] {
            let error = read(text).expect_err(text);
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn a_message_needs_a_role_and_its_content_and_each_field_once() {
        for (text, why) in [
            (r#"{"content":"hi"}"#, "missing field `role`"),
            (r#"{"role":"user"}"#, "missing field `content`"),
            (r#"{"role":"user","content":"hi","role":"tool"}"#, "duplicate field `role`"),
            (r#"{"role":"king","content":"hi"}"#, "unknown variant `king`"),
        ] {
            let error = serde_json::from_str::<Message>(text).expect_err(text).to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
