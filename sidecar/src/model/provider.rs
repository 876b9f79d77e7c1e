//! One question to a provider over HTTP: sent, read, and asked again where that may help.
//!
//! What is said is a [`Protocol`]'s business; here is what all of them share: credentials, time-outs, retries, bounds,
//! and the promise that a client which has seen text is told before it sees other text instead.

use std::time::Duration;

use async_trait::async_trait;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::error::speaks_of_overflow;
use super::retry::{Attempts, retry_after};
use super::{Ask, Model, ModelError, ModelReply, Piece};
use crate::outbound::{Credentials, Event, Events, Outbound, OutboundError, Spliced, read_bounded};

/// No answer of a model is this large; something else answers.
const MAX_ANSWER: usize = 32 << 20;
const MAX_EVENT: usize = 8 << 20;
const MAX_ERROR: usize = 64 << 10;
/// How deep a tool's arguments may be nested: what is read back from a journal is read to 128 levels, a message's own included.
const MAX_DEPTH: usize = 100;
/// How often a protocol may change its ways for one request.
const MAX_ADAPTATIONS: u32 = 3;

/// How a provider is spoken to.
pub(super) trait Protocol: Send + Sync + 'static {
    type Assembly: Assembly;

    fn uri(&self) -> &Uri;
    fn body(&self, ask: &Ask<'_>, stream: bool) -> Result<Spliced, ModelError>;
    /// Reads an answer that came in one piece.
    fn whole(&self, body: &[u8]) -> Result<ModelReply, ModelError>;
    /// Reads an answer that comes in events.
    fn assembly(&self) -> Self::Assembly;
    /// Whether this refusal can be avoided by asking differently, which from now on it does.
    fn adapts_to(&self, _refusal: &str) -> bool {
        false
    }
}

/// A reply in the making.
pub(super) trait Assembly: Send {
    fn take(&mut self, event: &Event, out: &mut Emitter) -> Result<Progress, ModelError>;
    /// The reply, after [`Progress::Done`] or the end of the stream.
    fn finish(self) -> Result<ModelReply, ModelError>;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    More,
    Done,
}

/// Passes text on as it comes.
pub(super) struct Emitter {
    pieces: Option<mpsc::UnboundedSender<Piece>>,
    passed_on: bool,
}

impl Emitter {
    pub(super) fn new(pieces: Option<mpsc::UnboundedSender<Piece>>) -> Self {
        Self { pieces, passed_on: false }
    }

    pub(super) fn text(&mut self, text: &str) {
        if let Some(pieces) = &self.pieces
            && !text.is_empty()
        {
            self.passed_on = true;
            // Nobody listening is no reason to stop: the answer is still wanted.
            let _ = pieces.send(Piece::Text(text.to_owned()));
        }
    }

    /// Says that what was passed on is void, if anything was.
    fn void(&mut self) {
        if std::mem::take(&mut self.passed_on)
            && let Some(pieces) = &self.pieces
        {
            let _ = pieces.send(Piece::Reset);
        }
    }
}

pub(super) struct Provider<P> {
    pub(super) protocol: P,
    pub(super) client: Outbound,
    pub(super) credentials: Credentials,
    /// For one attempt, from sending to the last token.
    pub(super) request_timeout: Duration,
}

/// One attempt that failed, and what the provider said if it was it who refused.
struct Failure {
    error: ModelError,
    refusal: Option<(u16, String)>,
}

impl From<ModelError> for Failure {
    fn from(error: ModelError) -> Self {
        Self { error, refusal: None }
    }
}

impl From<OutboundError> for Failure {
    fn from(error: OutboundError) -> Self {
        let detail = error.to_string();
        match error {
            OutboundError::TooLarge(_) => ModelError::Malformed { detail },
            _ => ModelError::Unavailable { detail, retry_after: None },
        }
        .into()
    }
}

#[async_trait]
impl<P: Protocol> Model for Provider<P> {
    async fn reply(&self, ask: Ask<'_>) -> Result<ModelReply, ModelError> {
        let stream = ask.pieces.is_some();
        let mut out = Emitter::new(ask.pieces.clone());
        let mut attempts = Attempts::new(self.request_timeout);
        let mut body = self.protocol.body(&ask, stream)?;
        let (mut adaptations, mut key_reread, mut nonsense_forgiven) = (0, false, false);
        loop {
            let attempt = Box::pin(self.attempt(&ask, body.clone(), stream, &mut out));
            let failure = match timeout(self.request_timeout, attempt).await {
                Ok(Ok(reply)) => return Ok(reply),
                Ok(Err(failure)) => failure,
                Err(_) => {
                    let seconds = self.request_timeout.as_secs_f64();
                    let detail = format!("no whole answer within requestTimeout ({seconds} s)");
                    ModelError::Unavailable { detail, retry_after: None }.into()
                }
            };
            if let Some((status, message)) = &failure.refusal {
                if *status == 401 && !key_reread && self.credentials.reread() {
                    key_reread = true;
                    continue;
                }
                if adaptations < MAX_ADAPTATIONS && self.protocol.adapts_to(message) {
                    adaptations += 1;
                    body = self.protocol.body(&ask, stream)?;
                    continue;
                }
            }
            let pause = match &failure.error {
                ModelError::Unavailable { retry_after, .. } => attempts.after_failure(*retry_after),
                // Once may be a hiccup of what stands between; twice is a server that speaks something else.
                ModelError::Malformed { .. } if !nonsense_forgiven => {
                    nonsense_forgiven = true;
                    attempts.after_failure(None)
                }
                _ => None,
            };
            let Some(pause) = pause else { return Err(failure.error) };
            out.void();
            tracing::warn!(
                reason = failure.error.kind(),
                status = failure.refusal.as_ref().map(|(status, _)| *status),
                pause_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX),
                "the model did not answer; asking again"
            );
            tokio::time::sleep(pause).await;
        }
    }
}

impl<P: Protocol> Provider<P> {
    async fn attempt(
        &self,
        ask: &Ask<'_>,
        body: Spliced,
        stream: bool,
        out: &mut Emitter,
    ) -> Result<ModelReply, Failure> {
        let mut request = Request::new(body);
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.protocol.uri().clone();
        *request.headers_mut() = self.credentials.headers();
        describe(request.headers_mut(), ask, stream);
        let response = self.client.send(request).await?;
        let (head, answer) = response.into_parts();
        if !head.status.is_success() {
            return Err(self.refusal(head.status.as_u16(), &head.headers, answer).await);
        }
        // A server that does not stream answers in one piece whatever it was asked.
        if !is_event_stream(&head.headers) {
            let reply = self.protocol.whole(&read_bounded(answer, MAX_ANSWER).await?)?;
            for text in reply.content.iter().filter_map(crate::state::Block::as_text) {
                out.text(text);
            }
            return Ok(reply);
        }
        let mut events = Events::new(answer, MAX_EVENT);
        let mut assembly = self.protocol.assembly();
        let mut received = 0;
        while let Some(event) = events.next().await? {
            received += event.data.len();
            if received > MAX_ANSWER {
                return Err(OutboundError::TooLarge(MAX_ANSWER).into());
            }
            if assembly.take(&event, out)? == Progress::Done {
                break;
            }
        }
        Ok(assembly.finish()?)
    }

    async fn refusal(&self, status: u16, headers: &HeaderMap, answer: hyper::body::Incoming) -> Failure {
        // What cannot be read is a refusal without words.
        let body = read_bounded(answer, MAX_ERROR).await.unwrap_or_default();
        let message = self.credentials.redact(&spoken_error(&body));
        let retry_after = retry_after(headers, jiff::Timestamp::now());
        let error = ModelError::of_status(status, &message, retry_after);
        Failure { error, refusal: Some((status, message)) }
    }
}

fn describe(headers: &mut HeaderMap, ask: &Ask<'_>, stream: bool) {
    const JSON: HeaderValue = HeaderValue::from_static("application/json");
    const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream");
    headers.insert(CONTENT_TYPE, JSON);
    headers.entry(ACCEPT).or_insert(if stream { EVENTS } else { JSON });
    let context = ask.context;
    for (name, value) in [("traceparent", &context.traceparent), ("tracestate", &context.tracestate)] {
        if let Some(Ok(value)) = value.as_deref().map(HeaderValue::from_str) {
            headers.insert(HeaderName::from_static(name), value);
        }
    }
}

fn is_event_stream(headers: &HeaderMap) -> bool {
    headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .is_some_and(|kind| kind.trim_start().to_ascii_lowercase().starts_with("text/event-stream"))
}

/// What an error body says, in whichever of the usual shapes.
fn spoken_error(body: &[u8]) -> String {
    let Ok(value) = serde_json::from_slice::<Value>(body) else {
        return String::from_utf8_lossy(body).into_owned();
    };
    let found = match value.get("error") {
        Some(Value::String(text)) => text.clone(),
        Some(error @ Value::Object(_)) => error_words(error),
        _ => error_words(&value),
    };
    if found.is_empty() { String::from_utf8_lossy(body).into_owned() } else { found }
}

/// An error object's message, and its code or type where the message alone does not tell.
pub(super) fn error_words(error: &Value) -> String {
    let text = |name: &str| error.get(name).and_then(Value::as_str).unwrap_or_default();
    let message = ["message", "detail", "error"].into_iter().map(text).find(|text| !text.is_empty());
    let code = ["code", "type"].into_iter().map(text).find(|text| !text.is_empty());
    match (message.unwrap_or_default(), code.unwrap_or_default()) {
        ("", code) => code.to_owned(),
        (message, "") => message.to_owned(),
        (message, code) => format!("{message} ({code})"),
    }
}

/// An error that came inside an answer which began well, so without a status of its own.
pub(super) fn error_in_stream(error: &Value) -> ModelError {
    let message = match error {
        Value::String(text) => text.clone(),
        _ => error_words(error),
    };
    let code = error.get("code").or_else(|| error.get("status"));
    let number = code.and_then(|code| code.as_u64().or_else(|| code.as_str()?.parse().ok()));
    let status = number.and_then(|code| u16::try_from(code).ok()).filter(|code| (400..600).contains(code));
    let status = status.unwrap_or_else(|| {
        let kind = error.get("type").and_then(Value::as_str).unwrap_or_default();
        match kind {
            _ if speaks_of_overflow(&message) => 400,
            "invalid_request_error" => 400,
            "authentication_error" => 401,
            "permission_error" => 403,
            "not_found_error" => 404,
            "request_too_large" => 413,
            "rate_limit_error" => 429,
            "overloaded_error" => 529,
            // What broke while it spoke is the server's trouble unless it says otherwise.
            _ => 500,
        }
    });
    ModelError::of_status(status, &message, None)
}

/// A piece of an answer that is not what the protocol says.
pub(super) fn malformed(what: &str, error: &serde_json::Error) -> ModelError {
    ModelError::Malformed { detail: format!("{what}: {error}") }
}

/// A stream that ended in the middle.
pub(super) fn broken_off() -> ModelError {
    ModelError::Unavailable { detail: "the stream ended before the answer did".into(), retry_after: None }
}

/// Tool arguments as they were written: an object where they are one, else whatever it is, for the tool to complain of.
/// Of a call that was `cut` off before its arguments came, nothing is made: a tool must not run on what was not said.
pub(super) fn tool_input(arguments: &str, cut: bool) -> Value {
    if arguments.trim().is_empty() && !cut {
        return Value::Object(serde_json::Map::new());
    }
    let read = serde_json::from_str(arguments).ok().filter(|input| !is_deeper(input, MAX_DEPTH));
    read.unwrap_or_else(|| Value::String(arguments.to_owned()))
}

/// Whether something in it stands in more than `levels` lists and objects.
fn is_deeper(value: &Value, levels: usize) -> bool {
    let deeper = |inner: &Value| levels == 0 || is_deeper(inner, levels - 1);
    match value {
        Value::Array(items) => items.iter().any(deeper),
        Value::Object(fields) => fields.values().any(deeper),
        _ => false,
    }
}

/// The input of an earlier tool call as providers take it: they refuse a history whose arguments are not an object.
pub(super) fn sendable_input(input: &Value) -> std::borrow::Cow<'_, Value> {
    use std::borrow::Cow;
    match input {
        Value::Object(_) => Cow::Borrowed(input),
        Value::Null => Cow::Owned(Value::Object(serde_json::Map::new())),
        other => Cow::Owned(serde_json::json!({ "malformed_arguments": other })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn errors_are_understood_in_every_shape() {
        for (body, words) in [
            (json!({"error": {"message": "no", "type": "t", "code": "c"}}).to_string(), "no (c)"),
            (json!({"error": "no"}).to_string(), "no"),
            (
                json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}})
                    .to_string(),
                "Overloaded (overloaded_error)",
            ),
            (json!({"detail": "Not Found"}).to_string(), "Not Found"),
            (json!({"message": "no", "object": "error"}).to_string(), "no"),
            ("<html>Bad Gateway</html>".to_owned(), "<html>Bad Gateway</html>"),
        ] {
            assert_eq!(spoken_error(body.as_bytes()), words);
        }
    }

    #[test]
    fn an_error_in_a_stream_is_sorted_by_code_then_by_type() {
        for (error, kind) in [
            (json!({"code": 429, "message": "slow down"}), "model-unavailable"),
            (json!({"code": "400", "message": "no"}), "model-refused"),
            (json!({"type": "overloaded_error"}), "model-unavailable"),
            (json!({"type": "invalid_request_error", "message": "prompt is too long"}), "context-too-long"),
            (json!({"message": "maximum context length is 5"}), "context-too-long"),
            (json!("exploded"), "model-unavailable"),
        ] {
            assert_eq!(error_in_stream(&error).kind(), kind, "{error}");
        }
    }

    #[test]
    fn arguments_that_are_no_json_are_kept_for_the_tool_to_refuse() {
        assert_eq!(tool_input("", false), json!({}));
        assert_eq!(tool_input("", true), json!(""), "not said is not nothing to say");
        for cut in [false, true] {
            assert_eq!(tool_input("{\"a\":1}", cut), json!({"a": 1}));
            assert_eq!(tool_input("{\"a\":", cut), json!("{\"a\":"));
        }
        assert_eq!(*sendable_input(&json!("{\"a\":")), json!({"malformed_arguments": "{\"a\":"}));
    }

    #[test]
    fn arguments_too_deep_to_be_read_back_are_kept_for_the_tool_to_refuse() {
        let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        assert!(tool_input(&nested(MAX_DEPTH), false).is_array());
        for levels in [MAX_DEPTH + 2, 127, 128, 100_000] {
            assert_eq!(tool_input(&nested(levels), false), json!(nested(levels)), "{levels}");
        }
    }
}
