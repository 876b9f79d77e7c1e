//! An answer of the Messages API, whole or in events.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::super::provider::{
    Assembly as Assembles, Emitter, Progress, broken_off, error_in_stream, malformed, tool_input,
};
use super::super::{ModelError, ModelReply, Stop};
use crate::outbound::Event;
use crate::state::{Block, ToolUse, Usage};

#[derive(Deserialize)]
struct Answer {
    content: Vec<Map<String, Value>>,
    #[serde(default)]
    stop_reason: Option<String>,
    #[serde(default)]
    usage: WireUsage,
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    model: Option<String>,
}

#[derive(Default, Deserialize)]
struct WireUsage {
    #[serde(default)]
    input_tokens: Option<u64>,
    #[serde(default)]
    output_tokens: Option<u64>,
    #[serde(default)]
    cache_read_input_tokens: Option<u64>,
    #[serde(default)]
    cache_creation_input_tokens: Option<u64>,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Said {
    MessageStart {
        message: Started,
    },
    ContentBlockStart {
        index: u64,
        content_block: Map<String, Value>,
    },
    ContentBlockDelta {
        index: u64,
        delta: Delta,
    },
    MessageDelta {
        #[serde(default)]
        delta: MessageDelta,
        #[serde(default)]
        usage: WireUsage,
    },
    MessageStop,
    Error {
        error: Value,
    },
    /// Pings, the ends of blocks, and what is yet to be invented.
    #[serde(other)]
    Else,
}

#[derive(Deserialize)]
struct Started {
    #[serde(default)]
    usage: WireUsage,
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    model: Option<String>,
}

#[derive(Default, Deserialize)]
struct MessageDelta {
    #[serde(default)]
    stop_reason: Option<String>,
}

#[derive(Deserialize)]
#[serde(tag = "type")]
enum Delta {
    #[serde(rename = "text_delta")]
    Text { text: String },
    #[serde(rename = "input_json_delta")]
    InputJson { partial_json: String },
    #[serde(rename = "thinking_delta")]
    Thinking { thinking: String },
    #[serde(rename = "signature_delta")]
    Signature { signature: String },
    #[serde(other)]
    Else,
}

pub(super) fn whole(body: &[u8]) -> Result<ModelReply, ModelError> {
    if let Ok(Said::Error { error }) = serde_json::from_slice(body) {
        return Err(error_in_stream(&error));
    }
    let answer: Answer =
        serde_json::from_slice(body).map_err(|error| malformed("the answer is not a message", &error))?;
    let mut assembly = Assembly {
        stop_reason: answer.stop_reason,
        id: answer.id,
        model: answer.model,
        ended: true,
        ..Assembly::default()
    };
    assembly.count(&answer.usage);
    for (index, fields) in answer.content.into_iter().enumerate() {
        assembly.blocks.push(Growing { index: index as u64, fields, input: String::new() });
    }
    assembly.finish()
}

#[derive(Default)]
pub(in crate::model) struct Assembly {
    blocks: Vec<Growing>,
    usage: Counted,
    stop_reason: Option<String>,
    id: Option<String>,
    model: Option<String>,
    ended: bool,
}

#[derive(Default)]
struct Counted {
    input: u64,
    output: u64,
    cache_read: u64,
    cache_written: u64,
}

/// A block as it was opened, and the JSON that has come for its input.
struct Growing {
    index: u64,
    fields: Map<String, Value>,
    input: String,
}

impl Growing {
    fn append(&mut self, name: &str, text: &str) {
        match self.fields.entry(name).or_insert_with(|| Value::String(String::new())) {
            Value::String(grown) => grown.push_str(text),
            other => *other = Value::String(text.to_owned()),
        }
    }

    fn finish(mut self) -> Result<Block, ModelError> {
        if !self.input.is_empty() {
            self.fields.insert("input".into(), tool_input(&self.input, false));
        }
        let kind = self.fields.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
        let mut text = |name: &str| match self.fields.shift_remove(name) {
            Some(Value::String(text)) => text,
            _ => String::new(),
        };
        Ok(match kind.as_str() {
            "text" => Block::text(text("text")),
            "thinking" => {
                let (thinking, signature) = (text("thinking"), text("signature"));
                let extra = (!signature.is_empty()).then(|| ("signature".to_owned(), signature.into()));
                Block::Thinking { thinking, extra: extra.into_iter().collect() }
            }
            "tool_use" => {
                let (id, name) = (text("id"), text("name"));
                if id.is_empty() || name.is_empty() {
                    return Err(ModelError::Malformed { detail: "a tool call has no id or no name".into() });
                }
                let input = self.fields.shift_remove("input").unwrap_or_else(|| Map::new().into());
                Block::ToolUse(ToolUse { id, name, input, extra: Map::new() })
            }
            _ => Block::Other(self.fields),
        })
    }
}

impl Assembles for Assembly {
    fn take(&mut self, event: &Event, out: &mut Emitter) -> Result<Progress, ModelError> {
        if event.data.is_empty() {
            return Ok(Progress::More);
        }
        let said = serde_json::from_slice(&event.data)
            .map_err(|error| malformed("a piece of the stream is not an event of a message", &error))?;
        match said {
            Said::MessageStart { message } => {
                self.count(&message.usage);
                (self.id, self.model) = (message.id, message.model);
            }
            Said::ContentBlockStart { index, content_block } => {
                out.text(content_block.get("text").and_then(Value::as_str).unwrap_or_default());
                self.blocks.push(Growing { index, fields: content_block, input: String::new() });
            }
            Said::ContentBlockDelta { index, delta } => self.grow(index, delta, out)?,
            Said::MessageDelta { delta, usage } => {
                self.count(&usage);
                self.stop_reason = delta.stop_reason.or(self.stop_reason.take());
            }
            Said::MessageStop => {
                self.ended = true;
                return Ok(Progress::Done);
            }
            Said::Error { error } => return Err(error_in_stream(&error)),
            Said::Else => {}
        }
        Ok(Progress::More)
    }

    fn finish(self) -> Result<ModelReply, ModelError> {
        if !self.ended {
            return Err(broken_off());
        }
        let mut content = Vec::with_capacity(self.blocks.len());
        for block in self.blocks {
            let block = block.finish()?;
            if block.as_text() != Some("") {
                content.push(block);
            }
        }
        let silent = content.iter().all(|block| !matches!(block, Block::Text { .. } | Block::ToolUse(_)));
        match self.stop_reason.as_deref() {
            Some("refusal") if silent => {
                Err(ModelError::Refused { detail: "it declined to answer; say it differently".into() })
            }
            Some("max_tokens") if silent => Err(ModelError::Refused {
                detail: "the answer reached its limit before it said anything; raise parameters.maxTokens"
                    .into(),
            }),
            Some("model_context_window_exceeded") if silent => {
                Err(ModelError::TooLong { detail: "nothing is left of it for an answer".into() })
            }
            reason => {
                let stop = stop(reason);
                if let Some(Block::ToolUse(call)) = content.last_mut()
                    && stop == Stop::MaxTokens
                    && call.input.as_object().is_some_and(Map::is_empty)
                {
                    call.input = tool_input("", true);
                }
                Ok(ModelReply { content, usage: self.usage.into(), stop, model: self.model, id: self.id })
            }
        }
    }
}

fn stop(reason: Option<&str>) -> Stop {
    match reason {
        Some("max_tokens" | "model_context_window_exceeded") => Stop::MaxTokens,
        Some("refusal") => Stop::Refusal,
        Some("tool_use") => Stop::ToolCalls,
        _ => Stop::Complete,
    }
}

impl From<Counted> for Usage {
    /// The provider counts what its cache holds apart; a caller wants to know how much was sent.
    fn from(counted: Counted) -> Self {
        Self {
            input_tokens: counted.input + counted.cache_read + counted.cache_written,
            output_tokens: counted.output,
            cached_tokens: counted.cache_read,
        }
    }
}

impl Assembly {
    /// Later counts replace earlier ones: they are totals.
    fn count(&mut self, usage: &WireUsage) {
        let counted = &mut self.usage;
        counted.input = usage.input_tokens.unwrap_or(counted.input);
        counted.output = usage.output_tokens.unwrap_or(counted.output);
        counted.cache_read = usage.cache_read_input_tokens.unwrap_or(counted.cache_read);
        counted.cache_written = usage.cache_creation_input_tokens.unwrap_or(counted.cache_written);
    }

    fn grow(&mut self, index: u64, delta: Delta, out: &mut Emitter) -> Result<(), ModelError> {
        let Some(block) = self.blocks.iter_mut().rfind(|block| block.index == index) else {
            return Err(ModelError::Malformed { detail: format!("a piece belongs to no block ({index})") });
        };
        match delta {
            Delta::Text { text } => {
                out.text(&text);
                block.append("text", &text);
            }
            Delta::InputJson { partial_json } => block.input.push_str(&partial_json),
            Delta::Thinking { thinking } => block.append("thinking", &thinking),
            Delta::Signature { signature } => block.append("signature", &signature),
            Delta::Else => {}
        }
        Ok(())
    }
}

#[cfg(test)]
// A `json!` is written where it is used.
#[allow(clippy::needless_pass_by_value)]
mod tests {
    use super::*;
    use serde_json::json;

    fn streamed(events: &[Value]) -> Result<ModelReply, ModelError> {
        let mut assembly = Assembly::default();
        for event in events {
            let event = Event { name: Default::default(), data: event.to_string().into() };
            assembly.take(&event, &mut Emitter::new(None))?;
        }
        assembly.finish()
    }

    fn delta(index: u64, delta: Value) -> Value {
        json!({"type": "content_block_delta", "index": index, "delta": delta})
    }

    fn start(index: u64, block: Value) -> Value {
        json!({"type": "content_block_start", "index": index, "content_block": block})
    }

    #[test]
    fn a_stream_with_thinking_text_and_tools_becomes_what_the_whole_would_be() {
        let events = [
            json!({"type": "message_start", "message": {"usage": {"input_tokens": 5, "cache_read_input_tokens": 90, "output_tokens": 1}}}),
            start(0, json!({"type": "thinking", "thinking": "", "signature": ""})),
            delta(0, json!({"type": "thinking_delta", "thinking": "hm"})),
            delta(0, json!({"type": "signature_delta", "signature": "s=="})),
            json!({"type": "content_block_stop", "index": 0}),
            json!({"type": "ping"}),
            start(1, json!({"type": "text", "text": ""})),
            delta(1, json!({"type": "text_delta", "text": "Let me "})),
            delta(1, json!({"type": "text_delta", "text": "look."})),
            start(2, json!({"type": "tool_use", "id": "t1", "name": "f", "input": {}})),
            start(3, json!({"type": "tool_use", "id": "t2", "name": "g", "input": {}})),
            delta(2, json!({"type": "input_json_delta", "partial_json": "{\"a\""})),
            delta(2, json!({"type": "input_json_delta", "partial_json": ": 1}"})),
            start(4, json!({"type": "redacted_thinking", "data": "xx"})),
            json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 12}}),
            json!({"type": "message_stop"}),
        ];
        let body = json!({"type": "message", "content": [
            {"type": "thinking", "thinking": "hm", "signature": "s=="},
            {"type": "text", "text": "Let me look."},
            {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1}},
            {"type": "tool_use", "id": "t2", "name": "g", "input": {}},
            {"type": "redacted_thinking", "data": "xx"},
        ], "stop_reason": "tool_use", "usage": {"input_tokens": 5, "cache_read_input_tokens": 90, "output_tokens": 12}});
        let reply = streamed(&events).expect("a reply");
        assert_eq!(reply, whole(body.to_string().as_bytes()).expect("a reply"));
        assert_eq!(reply.usage, Usage { input_tokens: 95, output_tokens: 12, cached_tokens: 90 });
        assert_eq!(serde_json::to_value(&reply.content).expect("JSON"), body["content"]);
        assert_eq!(streamed(&events[..15]).expect_err("no end").kind(), "model-unavailable");
    }

    #[test]
    fn an_answer_that_was_cut_is_told_from_a_whole_one_and_a_call_without_its_arguments_is_none() {
        let ended = |reason: &str, blocks: &[Value]| {
            let start = json!({"type": "message_start", "message": {"id": "msg_1", "model": "claude-x-1"}});
            let end = json!({"type": "message_delta", "delta": {"stop_reason": reason}});
            let events = [&[start], blocks, &[end, json!({"type": "message_stop"})]].concat();
            streamed(&events).expect("a reply")
        };
        let said = [start(0, json!({"type": "text", "text": "Half a"}))];
        for (reason, stop) in [
            ("end_turn", Stop::Complete),
            ("stop_sequence", Stop::Complete),
            ("max_tokens", Stop::MaxTokens),
            ("model_context_window_exceeded", Stop::MaxTokens),
            ("refusal", Stop::Refusal),
        ] {
            let reply = ended(reason, &said);
            assert_eq!(reply.stop, stop, "{reason}");
            assert_eq!((reply.id.as_deref(), reply.model.as_deref()), (Some("msg_1"), Some("claude-x-1")));
        }
        let call = start(1, json!({"type": "tool_use", "id": "t1", "name": "refund_all", "input": {}}));
        let input = |reason: &str, blocks: &[Value]| match ended(reason, blocks).content.pop() {
            Some(Block::ToolUse(call)) => call.input,
            other => panic!("no call: {other:?}"),
        };
        assert_eq!(input("tool_use", std::slice::from_ref(&call)), json!({}));
        assert_eq!(input("max_tokens", std::slice::from_ref(&call)), json!(""), "its arguments had not come");
        let arguments = delta(1, json!({"type": "input_json_delta", "partial_json": "{\"a\": 1}"}));
        assert_eq!(input("max_tokens", &[call, arguments]), json!({"a": 1}));
    }

    #[test]
    fn errors_and_silences_are_told_apart() {
        let overloaded =
            json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}});
        assert_eq!(
            streamed(std::slice::from_ref(&overloaded)).expect_err("overloaded").kind(),
            "model-unavailable"
        );
        assert_eq!(
            whole(overloaded.to_string().as_bytes()).expect_err("overloaded").kind(),
            "model-unavailable"
        );
        let silent = |reason: &str| json!({"content": [], "stop_reason": reason}).to_string();
        assert_eq!(whole(silent("refusal").as_bytes()).expect_err("refused").kind(), "model-refused");
        assert_eq!(whole(silent("max_tokens").as_bytes()).expect_err("cut").kind(), "model-refused");
        assert!(whole(silent("end_turn").as_bytes()).expect("nothing to add").content.is_empty());
        assert_eq!(whole(b"{}").expect_err("nothing").kind(), "model-malformed");
    }
}
