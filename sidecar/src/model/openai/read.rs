//! An answer of Chat Completions, whole or in pieces, however loosely its server keeps to the protocol.

use std::collections::BTreeSet;
use std::fmt;

use rand::RngCore;
use serde::de::{IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::super::provider::{
    Assembly as Assembles, Emitter, Progress, broken_off, error_in_stream, malformed, tool_input,
};
use super::super::{ModelError, ModelReply, Stop};
use crate::outbound::Event;
use crate::state::{Block, ToolUse, Usage};

#[derive(Deserialize)]
struct Answer {
    #[serde(default)]
    choices: Vec<Choice>,
    #[serde(default)]
    usage: Option<WireUsage>,
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    model: Option<String>,
    #[serde(default)]
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Choice {
    #[serde(default)]
    index: u32,
    /// In a stream.
    #[serde(default)]
    delta: Option<Said>,
    /// In one piece.
    #[serde(default)]
    message: Option<Said>,
    #[serde(default)]
    finish_reason: Option<String>,
}

#[derive(Default, Deserialize)]
struct Said {
    #[serde(default, deserialize_with = "text_or_parts")]
    content: String,
    #[serde(default, deserialize_with = "text_or_parts")]
    refusal: String,
    #[serde(default, deserialize_with = "text_or_parts")]
    reasoning_content: String,
    #[serde(default, deserialize_with = "text_or_parts")]
    reasoning: String,
    #[serde(default)]
    tool_calls: Option<Vec<CallPiece>>,
}

#[derive(Deserialize)]
struct CallPiece {
    #[serde(default)]
    index: Option<u32>,
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    function: Option<FunctionPiece>,
}

#[derive(Deserialize)]
struct FunctionPiece {
    #[serde(default)]
    name: Option<String>,
    /// A string, or the object itself.
    #[serde(default)]
    arguments: Option<Value>,
}

#[derive(Deserialize)]
struct WireUsage {
    #[serde(default)]
    prompt_tokens: Option<u64>,
    #[serde(default)]
    completion_tokens: Option<u64>,
    #[serde(default)]
    prompt_tokens_details: Option<PromptDetails>,
}

#[derive(Deserialize)]
struct PromptDetails {
    #[serde(default)]
    cached_tokens: Option<u64>,
}

impl From<WireUsage> for Usage {
    fn from(wire: WireUsage) -> Self {
        Self {
            input_tokens: wire.prompt_tokens.unwrap_or_default(),
            output_tokens: wire.completion_tokens.unwrap_or_default(),
            cached_tokens: wire.prompt_tokens_details.and_then(|d| d.cached_tokens).unwrap_or_default(),
        }
    }
}

pub(super) fn whole(body: &[u8]) -> Result<ModelReply, ModelError> {
    let answer: Answer = serde_json::from_slice(body)
        .map_err(|error| malformed("the answer is not a chat completion", &error))?;
    let mut assembly = Assembly { ended: true, ..Assembly::default() };
    if answer.choices.is_empty() && answer.error.is_none() {
        return Err(ModelError::Malformed { detail: "the answer has no choices".into() });
    }
    assembly.add(answer, &mut Emitter::new(None))?;
    assembly.finish()
}

#[derive(Default)]
pub(in crate::model) struct Assembly {
    text: String,
    thinking: String,
    calls: Vec<Call>,
    usage: Usage,
    id: Option<String>,
    model: Option<String>,
    /// It said in so many words that it will not.
    refused: bool,
    finish_reason: Option<String>,
    ended: bool,
}

#[derive(Default)]
struct Call {
    index: Option<u32>,
    id: String,
    name: String,
    arguments: String,
}

impl Assembles for Assembly {
    fn take(&mut self, event: &Event, out: &mut Emitter) -> Result<Progress, ModelError> {
        if event.data.as_ref() == b"[DONE]" {
            self.ended = true;
            return Ok(Progress::Done);
        }
        if event.data.is_empty() {
            return Ok(Progress::More);
        }
        if event.name.as_ref() == b"error" {
            let said = String::from_utf8_lossy(&event.data);
            let error = serde_json::from_str(&said).unwrap_or_else(|_| Value::String(said.into_owned()));
            return Err(error_in_stream(error.get("error").unwrap_or(&error)));
        }
        let chunk = serde_json::from_slice(&event.data)
            .map_err(|error| malformed("a piece of the stream is not a chat completion chunk", &error))?;
        self.add(chunk, out)?;
        Ok(Progress::More)
    }

    fn finish(self) -> Result<ModelReply, ModelError> {
        if self.finish_reason.is_none() && !self.ended {
            return Err(broken_off());
        }
        if self.text.is_empty() && self.calls.is_empty() {
            let why = match self.finish_reason.as_deref() {
                Some("length") => {
                    "the answer reached its limit before it said anything; raise parameters.maxTokens"
                }
                Some("content_filter") => "its content filter held the answer back; say it differently",
                _ => "",
            };
            if !why.is_empty() {
                return Err(ModelError::Refused { detail: why.into() });
            }
        }
        let mut content = Vec::with_capacity(1 + self.calls.len());
        if !self.thinking.is_empty() {
            content.push(Block::Thinking { thinking: self.thinking, extra: Map::new() });
        }
        if !self.text.is_empty() {
            content.push(Block::text(self.text));
        }
        let stop = match self.finish_reason.as_deref() {
            Some("length") => Stop::MaxTokens,
            Some("content_filter") => Stop::Refusal,
            _ if self.refused => Stop::Refusal,
            _ if !self.calls.is_empty() => Stop::ToolCalls,
            _ => Stop::Complete,
        };
        let mut ids = BTreeSet::new();
        let last = self.calls.len().saturating_sub(1);
        for (at, call) in self.calls.into_iter().enumerate() {
            if call.name.is_empty() {
                return Err(ModelError::Malformed { detail: "a tool call has no name".into() });
            }
            // Some servers give no ids, or the same to each: a result must find its one call.
            let taken = call.id.is_empty() || !ids.insert(call.id.clone());
            let id = if taken { fresh_call_id() } else { call.id };
            let input = tool_input(&call.arguments, at == last && stop == Stop::MaxTokens);
            content.push(Block::ToolUse(ToolUse { id, name: call.name, input, extra: Map::new() }));
        }
        Ok(ModelReply { content, usage: self.usage, stop, model: self.model, id: self.id })
    }
}

impl Assembly {
    fn add(&mut self, answer: Answer, out: &mut Emitter) -> Result<(), ModelError> {
        if let Some(error) = answer.error.filter(|error| !error.is_null()) {
            return Err(error_in_stream(&error));
        }
        if let Some(usage) = answer.usage {
            self.usage = usage.into();
        }
        self.id = self.id.take().or(answer.id.filter(|id| !id.is_empty()));
        self.model = self.model.take().or(answer.model.filter(|model| !model.is_empty()));
        for choice in answer.choices.into_iter().filter(|choice| choice.index == 0) {
            if let Some(said) = choice.delta.or(choice.message) {
                self.thinking.push_str(&said.reasoning_content);
                // Servers that send both send the same in both.
                if said.reasoning_content.is_empty() {
                    self.thinking.push_str(&said.reasoning);
                }
                self.refused |= !said.refusal.is_empty();
                for text in [said.content, said.refusal] {
                    out.text(&text);
                    self.append(text);
                }
                said.tool_calls.into_iter().flatten().for_each(|piece| self.add_call(piece));
            }
            if let Some(reason) = choice.finish_reason.filter(|reason| !reason.is_empty()) {
                self.finish_reason = Some(reason);
            }
        }
        Ok(())
    }

    fn append(&mut self, text: String) {
        if self.text.is_empty() { self.text = text } else { self.text.push_str(&text) }
    }

    fn add_call(&mut self, piece: CallPiece) {
        let id = piece.id.unwrap_or_default();
        let named = piece
            .function
            .as_ref()
            .and_then(|function| function.name.as_ref())
            .is_some_and(|n| !n.is_empty());
        let position = match piece.index {
            Some(_) => self.calls.iter().rposition(|call| call.index == piece.index),
            // With nothing to tell calls apart, a name begins one and anything else belongs to the last.
            None if id.is_empty() => self.calls.len().checked_sub(1).filter(|_| !named),
            None => self.calls.iter().rposition(|call| call.id == id),
        };
        // An index that comes with another id is another call: some servers number every call 0.
        let continues = |call: &Call| id.is_empty() || call.id.is_empty() || call.id == id;
        let position = position.filter(|&at| continues(&self.calls[at]));
        let position = position.unwrap_or_else(|| {
            self.calls.push(Call { index: piece.index, ..Call::default() });
            self.calls.len() - 1
        });
        let call = &mut self.calls[position];
        if call.id.is_empty() {
            call.id = id;
        }
        let Some(function) = piece.function else { return };
        if let Some(name) = function.name
            && call.name.is_empty()
        {
            call.name = name;
        }
        match function.arguments {
            Some(Value::String(text)) => call.arguments.push_str(&text),
            Some(Value::Null) | None => {}
            Some(other) => call.arguments = other.to_string(),
        }
    }
}

fn fresh_call_id() -> String {
    let mut bytes = [0u8; 12];
    rand::rng().fill_bytes(&mut bytes);
    bytes.iter().fold("call_".to_owned(), |id, byte| format!("{id}{byte:02x}"))
}

/// Text as a string, as `null`, or as a list of parts of which the text is taken.
fn text_or_parts<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    struct Text;
    impl<'de> Visitor<'de> for Text {
        type Value = String;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a text, null or a list of parts")
        }
        fn visit_str<E>(self, text: &str) -> Result<String, E> {
            Ok(text.to_owned())
        }
        fn visit_string<E>(self, text: String) -> Result<String, E> {
            Ok(text)
        }
        fn visit_unit<E>(self) -> Result<String, E> {
            Ok(String::new())
        }
        fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<String, A::Error> {
            let mut text = String::new();
            while let Some(part) = parts.next_element::<Value>()? {
                text.push_str(part.get("text").and_then(Value::as_str).unwrap_or_default());
            }
            Ok(text)
        }
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<String, A::Error> {
            while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            Ok(String::new())
        }
    }
    deserializer.deserialize_any(Text)
}

#[cfg(test)]
// A `json!` is written where it is used.
#[allow(clippy::needless_pass_by_value)]
mod tests {
    use super::*;
    use serde_json::json;

    fn streamed(chunks: &[Value]) -> Result<ModelReply, ModelError> {
        let mut assembly = Assembly::default();
        for chunk in chunks {
            let event = Event { name: Default::default(), data: chunk.to_string().into() };
            assembly.take(&event, &mut Emitter::new(None))?;
        }
        assembly.finish()
    }

    fn delta(delta: Value) -> Value {
        json!({"choices": [{"index": 0, "delta": delta}]})
    }

    fn end() -> Value {
        json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    }

    fn calls(reply: &ModelReply) -> Vec<(String, String, Value)> {
        let calls = reply.content.iter().filter_map(|block| match block {
            Block::ToolUse(call) => Some((call.id.clone(), call.name.clone(), call.input.clone())),
            _ => None,
        });
        calls.collect()
    }

    fn piece(index: Value, id: Value, name: Value, arguments: Value) -> Value {
        delta(
            json!({"tool_calls": [{"index": index, "id": id, "function": {"name": name, "arguments": arguments}}]}),
        )
    }

    #[test]
    fn interleaved_calls_are_put_together_by_index() {
        let reply = streamed(&[
            piece(json!(0), json!("a"), json!("f"), json!("")),
            piece(json!(1), json!("b"), json!("g"), json!("{\"y\"")),
            piece(json!(0), json!(null), json!(null), json!("{\"x\":1}")),
            piece(json!(1), json!(null), json!(null), json!(":2}")),
            end(),
        ])
        .expect("a reply");
        assert_eq!(
            calls(&reply),
            [("a".into(), "f".into(), json!({"x": 1})), ("b".into(), "g".into(), json!({"y": 2}))]
        );
    }

    #[test]
    fn loose_servers_are_understood() {
        let reply = streamed(&[
            // Every call numbered 0, whole, with arguments as an object.
            piece(json!(0), json!("a"), json!("f"), json!({"x": 1})),
            piece(json!(0), json!("b"), json!("g"), json!({"y": 2})),
            // Neither index nor id.
            piece(json!(null), json!(null), json!("h"), json!("{\"z\":")),
            piece(json!(null), json!(null), json!(null), json!("3}")),
            piece(json!(null), json!(null), json!("i"), json!("")),
            json!({"choices": [{"delta": {"content": null}, "finish_reason": "tool_calls"}]}),
        ])
        .expect("a reply");
        let calls_made: Vec<_> = calls(&reply).into_iter().map(|(_, name, input)| (name, input)).collect();
        let expected =
            [("f", json!({"x": 1})), ("g", json!({"y": 2})), ("h", json!({"z": 3})), ("i", json!({}))];
        assert_eq!(calls_made, expected.map(|(name, input)| (name.to_owned(), input)));
        let same_id = whole(
            json!({"choices": [{"message": {"tool_calls": [
                {"id": "x", "function": {"name": "f", "arguments": {}}},
                {"index": 1, "id": "x", "function": {"name": "g", "arguments": "{}"}},
                {"index": 2, "function": {"name": "h", "arguments": null}},
            ]}}]})
            .to_string()
            .as_bytes(),
        )
        .expect("a reply");
        let ids: BTreeSet<String> = calls(&same_id).into_iter().map(|(id, ..)| id).collect();
        assert_eq!(ids.len(), 3, "each call has an id of its own: {ids:?}");
    }

    #[test]
    fn thinking_refusals_parts_and_usage_are_read() {
        let reply = streamed(&[
            delta(json!({"role": "assistant", "content": "", "reasoning_content": "hm"})),
            delta(json!({"content": [{"type": "text", "text": "I "}]})),
            delta(json!({"refusal": "cannot"})),
            end(),
            json!({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}}}),
        ])
        .expect("a reply");
        assert_eq!(reply.content[0], Block::Thinking { thinking: "hm".into(), extra: Map::new() });
        assert_eq!(reply.content[1].as_text(), Some("I cannot"));
        assert_eq!(reply.usage, Usage { input_tokens: 7, output_tokens: 2, cached_tokens: 4 });
    }

    #[test]
    fn an_answer_that_was_cut_is_told_from_a_whole_one_and_a_call_without_its_arguments_is_none() {
        let ended = |reason: &str, said: Value| {
            let end = json!({"id": "chatcmpl-1", "model": "x-1", "choices": [{"delta": {}, "finish_reason": reason}]});
            streamed(&[said, end]).expect("a reply")
        };
        for (reason, stop) in [
            ("stop", Stop::Complete),
            ("length", Stop::MaxTokens),
            ("content_filter", Stop::Refusal),
            ("unheard_of", Stop::Complete),
        ] {
            let reply = ended(reason, delta(json!({"content": "Half a"})));
            assert_eq!(reply.stop, stop, "{reason}");
            assert_eq!((reply.id.as_deref(), reply.model.as_deref()), (Some("chatcmpl-1"), Some("x-1")));
        }
        assert_eq!(ended("stop", delta(json!({"refusal": "No."}))).stop, Stop::Refusal);
        let call = |arguments: &str| piece(json!(0), json!("a"), json!("refund_all"), json!(arguments));
        let input = |reason: &str, arguments: &str| calls(&ended(reason, call(arguments))).remove(0).2;
        assert_eq!(input("tool_calls", ""), json!({}));
        assert_eq!(input("length", ""), json!(""), "its arguments had not come");
        assert_eq!(input("length", "{\"a\": 1}"), json!({"a": 1}));
        assert_eq!(ended("tool_calls", call("{}")).stop, Stop::ToolCalls);
    }

    #[test]
    fn a_stream_without_an_end_is_no_answer_and_an_error_in_it_is_one() {
        assert_eq!(
            streamed(&[delta(json!({"content": "half"}))]).expect_err("cut").kind(),
            "model-unavailable"
        );
        let refused = streamed(&[json!({"error": {"message": "bad", "code": 400}})]).expect_err("refused");
        assert_eq!(refused.kind(), "model-refused");
        let filtered = json!({"choices": [{"delta": {}, "finish_reason": "content_filter"}]});
        assert_eq!(streamed(&[filtered]).expect_err("filtered").kind(), "model-refused");
        assert_eq!(whole(b"{}").expect_err("nothing").kind(), "model-malformed");
        assert_eq!(whole(b"<html>").expect_err("nothing").kind(), "model-malformed");
    }
}
