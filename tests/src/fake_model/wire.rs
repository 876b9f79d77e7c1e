//! Both protocols, as bytes: what was asked, and what is answered.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use hyper::{Response, StatusCode};
use serde_json::{Value, json};

use super::{Answer, Called, Ending, Protocol, Returned, Seen, Turn};
use crate::ledger::Ledger;
use crate::serve::{FakeBody, HangUp, plain};

pub(super) fn transcript(protocol: Protocol, body: &Value) -> Vec<Turn> {
    let mut turns = Vec::new();
    if let Some(system) = body.get("system") {
        turns.push(Turn { role: "system".into(), text: text_of(system), ..Turn::default() });
    }
    for message in body["messages"].as_array().into_iter().flatten() {
        let mut turn = Turn {
            role: message["role"].as_str().unwrap_or_default().into(),
            text: text_of(&message["content"]),
            ..Turn::default()
        };
        match protocol {
            Protocol::OpenAi => openai_tools(&mut turn, message),
            Protocol::Anthropic => anthropic_tools(&mut turn, message),
        }
        turns.push(turn);
    }
    turns
}

fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        _ => String::new(),
    }
}

fn openai_tools(turn: &mut Turn, message: &Value) {
    for call in message["tool_calls"].as_array().into_iter().flatten() {
        let arguments = call["function"]["arguments"].as_str().unwrap_or_default();
        turn.tool_calls.push(Called {
            id: call["id"].as_str().unwrap_or_default().into(),
            name: call["function"]["name"].as_str().unwrap_or_default().into(),
            input: serde_json::from_str(arguments).unwrap_or_else(|_| json!(arguments)),
        });
    }
    if let Some(id) = message["tool_call_id"].as_str() {
        turn.tool_results.push(Returned { id: id.into(), text: std::mem::take(&mut turn.text) });
    }
}

fn anthropic_tools(turn: &mut Turn, message: &Value) {
    for block in message["content"].as_array().into_iter().flatten() {
        let text = |name: &str| block[name].as_str().unwrap_or_default().to_owned();
        match block["type"].as_str() {
            Some("tool_use") => turn.tool_calls.push(Called {
                id: text("id"),
                name: text("name"),
                input: block["input"].clone(),
            }),
            Some("tool_result") => {
                turn.tool_results
                    .push(Returned { id: text("tool_use_id"), text: text_of(&block["content"]) });
            }
            _ => {}
        }
    }
}

/// Writes down that the answer left, wholly or not, when it is dropped.
struct Departure {
    ledger: Ledger,
    asked: u64,
    text: String,
    tools: Vec<Value>,
    outcome: &'static str,
}

impl Departure {
    fn is(&mut self, outcome: &'static str) {
        self.outcome = outcome;
    }
}

impl Drop for Departure {
    fn drop(&mut self) {
        self.ledger.write(json!({
            "event": "answered", "asked": self.asked, "outcome": self.outcome, "text": self.text, "toolCalls": self.tools,
        }));
    }
}

/// A step of a stream: an event to send, or the end of the connection.
enum Piece {
    Event { name: Option<&'static str>, data: String, word: bool },
    Cut,
}

pub(super) fn say(seen: &Seen, answer: &Answer, asked: u64, ledger: Ledger) -> Response<FakeBody> {
    let calls: Vec<(String, String, String)> = answer
        .tools
        .iter()
        .map(|ask| (ask.id.clone().unwrap_or_else(fresh_id), ask.name.clone(), ask.arguments.clone()))
        .collect();
    let tools =
        calls.iter().map(|(id, name, arguments)| json!({"id": id, "name": name, "arguments": arguments}));
    let mut departure =
        Departure { ledger, asked, text: answer.text.clone(), tools: tools.collect(), outcome: "gone" };
    if !seen.stream {
        let body = match seen.protocol {
            Protocol::OpenAi => openai_whole(seen, answer, &calls),
            Protocol::Anthropic => anthropic_whole(seen, answer, &calls),
        };
        departure.is("whole");
        return plain(StatusCode::OK, "application/json", &body.to_string());
    }
    let pieces = match seen.protocol {
        Protocol::OpenAi => openai_stream(seen, answer, &calls),
        Protocol::Anthropic => anthropic_stream(seen, answer, &calls),
    };
    let delay = answer.token_delay;
    let count = pieces.len();
    let ended = if answer.ending == Ending::Proper { "whole" } else { "broken" };
    let stream: BoxStream<'static, Result<Frame<Bytes>, HangUp>> = futures::stream::iter(pieces)
        .enumerate()
        .then(move |(index, piece)| {
            if index + 1 == count {
                departure.is(ended);
            }
            async move {
                match piece {
                    Piece::Event { name, data, word } => {
                        if word {
                            tokio::time::sleep(delay).await;
                        }
                        let name = name.map_or_else(String::new, |name| format!("event: {name}\n"));
                        Ok(Frame::data(Bytes::from(format!("{name}data: {data}\n\n"))))
                    }
                    Piece::Cut => {
                        // What was written goes out before the connection breaks.
                        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
                        Err(HangUp)
                    }
                }
            }
        })
        .boxed();
    let mut response = Response::new(BodyExt::boxed_unsync(StreamBody::new(stream)));
    response
        .headers_mut()
        .insert("content-type", hyper::header::HeaderValue::from_static("text/event-stream; charset=utf-8"));
    response
}

fn fresh_id() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let nanos =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_nanos();
    format!("call_{:x}_{}", nanos, NEXT.fetch_add(1, Relaxed))
}

fn model<'a>(seen: &'a Seen, answer: &'a Answer) -> &'a str {
    answer.model.as_deref().or(seen.body["model"].as_str()).unwrap_or("fake")
}

fn counted(seen: &Seen, answer: &Answer) -> (usize, usize) {
    (
        seen.transcript.iter().map(|turn| turn.text.len() / 4 + 1).sum(),
        answer.text.split_whitespace().count().max(1),
    )
}

/// The words of the text, with what follows the ending's count replaced by it.
fn words(answer: &Answer, event: impl Fn(&str) -> Piece, garbage: Piece, error: Piece) -> Vec<Piece> {
    let all = answer.text.split_inclusive(' ');
    let (count, last) = match answer.ending {
        Ending::Proper => return all.map(event).collect(),
        Ending::CutAfter(count) => (count, Piece::Cut),
        Ending::GarbageAfter(count) => (count, garbage),
        Ending::ErrorAfter(count) => (count, error),
    };
    all.take(count).map(event).chain([last]).collect()
}

fn openai_reason(answer: &Answer, all_said: bool) -> &'static str {
    match (answer.cut_short, all_said) {
        (true, _) => "length",
        (false, true) => "stop",
        (false, false) => "tool_calls",
    }
}

fn anthropic_reason(answer: &Answer, all_said: bool) -> &'static str {
    match (answer.cut_short, all_said) {
        (true, _) => "max_tokens",
        (false, true) => "end_turn",
        (false, false) => "tool_use",
    }
}

fn openai_whole(seen: &Seen, answer: &Answer, calls: &[(String, String, String)]) -> Value {
    let (input, output) = counted(seen, answer);
    let tool_calls: Vec<Value> = calls
        .iter()
        .map(|(id, name, arguments)| json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}))
        .collect();
    let mut message = json!({"role": "assistant", "content": answer.text});
    if let Some(thinking) = &answer.thinking {
        message["reasoning_content"] = json!(thinking);
    }
    if !tool_calls.is_empty() {
        message["tool_calls"] = json!(tool_calls);
    }
    json!({
        "id": "chatcmpl-fake", "object": "chat.completion", "created": 1, "model": model(seen, answer),
        "choices": [{"index": 0, "message": message, "finish_reason": openai_reason(answer, calls.is_empty())}],
        "usage": {"prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output},
    })
}

fn openai_stream(seen: &Seen, answer: &Answer, calls: &[(String, String, String)]) -> Vec<Piece> {
    let chunk = |choices: Value| json!({"id": "chatcmpl-fake", "object": "chat.completion.chunk", "created": 1, "model": model(seen, answer), "choices": choices});
    let event = |data: Value, word: bool| Piece::Event { name: None, data: data.to_string(), word };
    let delta = |delta: Value| chunk(json!([{"index": 0, "delta": delta, "finish_reason": null}]));
    let mut pieces = vec![event(delta(json!({"role": "assistant", "content": ""})), false)];
    if let Some(thinking) = &answer.thinking {
        pieces.push(event(delta(json!({"reasoning_content": thinking})), false));
    }
    let garbage = Piece::Event { name: None, data: "{\"choices\":[{\"delta\":".into(), word: false };
    let error = event(json!({"error": {"message": "the engine fell over", "code": 500}}), false);
    pieces.extend(words(answer, |word| event(delta(json!({"content": word})), true), garbage, error));
    if answer.ending != Ending::Proper {
        return pieces;
    }
    // Names first, then the arguments in halves, in turns: as servers that call in parallel do.
    for (index, (id, name, _)) in calls.iter().enumerate() {
        let call = json!({"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": ""}});
        pieces.push(event(delta(json!({"tool_calls": [call]})), false));
    }
    for half in [0, 1] {
        for (index, (_, _, arguments)) in calls.iter().enumerate() {
            let mut middle = arguments.len() / 2;
            while !arguments.is_char_boundary(middle) {
                middle -= 1;
            }
            let part = if half == 0 { &arguments[..middle] } else { &arguments[middle..] };
            let call = json!({"index": index, "function": {"arguments": part}});
            pieces.push(event(delta(json!({"tool_calls": [call]})), false));
        }
    }
    let reason = openai_reason(answer, calls.is_empty());
    pieces.push(event(chunk(json!([{"index": 0, "delta": {}, "finish_reason": reason}])), false));
    if seen.body["stream_options"]["include_usage"] == true {
        let (input, output) = counted(seen, answer);
        let mut usage = chunk(json!([]));
        usage["usage"] =
            json!({"prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output});
        pieces.push(event(usage, false));
    }
    pieces.push(Piece::Event { name: None, data: "[DONE]".into(), word: false });
    pieces
}

fn anthropic_whole(seen: &Seen, answer: &Answer, calls: &[(String, String, String)]) -> Value {
    let (input, output) = counted(seen, answer);
    let mut content = Vec::new();
    if let Some(thinking) = &answer.thinking {
        content.push(json!({"type": "thinking", "thinking": thinking, "signature": "signed"}));
    }
    if !answer.text.is_empty() {
        content.push(json!({"type": "text", "text": answer.text}));
    }
    for (id, name, arguments) in calls {
        let input: Value = serde_json::from_str(arguments).unwrap_or_default();
        content.push(json!({"type": "tool_use", "id": id, "name": name, "input": input}));
    }
    json!({
        "id": "msg_fake", "type": "message", "role": "assistant", "model": model(seen, answer), "content": content,
        "stop_reason": anthropic_reason(answer, calls.is_empty()), "stop_sequence": null,
        "usage": {"input_tokens": input, "output_tokens": output},
    })
}

fn anthropic_stream(seen: &Seen, answer: &Answer, calls: &[(String, String, String)]) -> Vec<Piece> {
    let (input, output) = counted(seen, answer);
    let event = |name: &'static str, mut data: Value, word: bool| {
        data["type"] = json!(name);
        Piece::Event { name: Some(name), data: data.to_string(), word }
    };
    let message = json!({
        "id": "msg_fake", "type": "message", "role": "assistant", "model": model(seen, answer), "content": [],
        "stop_reason": null, "stop_sequence": null, "usage": {"input_tokens": input, "output_tokens": 1},
    });
    let mut pieces =
        vec![event("message_start", json!({"message": message}), false), event("ping", json!({}), false)];
    let mut index = 0;
    let mut block = |pieces: &mut Vec<Piece>, open: Value, deltas: Vec<Piece>, whole: bool| {
        pieces.push(event("content_block_start", json!({"index": index, "content_block": open}), false));
        pieces.extend(deltas);
        if whole {
            pieces.push(event("content_block_stop", json!({"index": index}), false));
        }
        index += 1;
    };
    let delta = |index: usize, delta: Value, word: bool| {
        event("content_block_delta", json!({"index": index, "delta": delta}), word)
    };
    let mut at = 0;
    if let Some(thinking) = &answer.thinking {
        let deltas = vec![
            delta(at, json!({"type": "thinking_delta", "thinking": thinking}), false),
            delta(at, json!({"type": "signature_delta", "signature": "signed"}), false),
        ];
        block(&mut pieces, json!({"type": "thinking", "thinking": "", "signature": ""}), deltas, true);
        at += 1;
    }
    if !answer.text.is_empty() {
        let garbage = Piece::Event { name: Some("content_block_delta"), data: "<html>".into(), word: false };
        let error =
            event("error", json!({"error": {"type": "overloaded_error", "message": "Overloaded"}}), false);
        let said = words(
            answer,
            |word| delta(at, json!({"type": "text_delta", "text": word}), true),
            garbage,
            error,
        );
        block(&mut pieces, json!({"type": "text", "text": ""}), said, answer.ending == Ending::Proper);
        at += 1;
    }
    if answer.ending != Ending::Proper {
        return pieces;
    }
    for (id, name, arguments) in calls {
        let mut middle = arguments.len() / 2;
        while !arguments.is_char_boundary(middle) {
            middle -= 1;
        }
        let part = |json: &str| delta(at, json!({"type": "input_json_delta", "partial_json": json}), false);
        let deltas = vec![part(""), part(&arguments[..middle]), part(&arguments[middle..])];
        block(&mut pieces, json!({"type": "tool_use", "id": id, "name": name, "input": {}}), deltas, true);
        at += 1;
    }
    let reason = anthropic_reason(answer, calls.is_empty());
    let last =
        json!({"delta": {"stop_reason": reason, "stop_sequence": null}, "usage": {"output_tokens": output}});
    pieces.push(event("message_delta", last, false));
    pieces.push(event("message_stop", json!({}), false));
    pieces
}
