//! What a caller says about one call: its body's `context`, and the headers every proxy knows.

use http::HeaderMap;

use super::problem::Problem;
use crate::model::CallContext;
use crate::state::{CallId, Id};
use crate::telemetry::traces;

/// The W3C header that names the caller's place in its trace.
const TRACEPARENT: &str = "traceparent";
const TRACESTATE: &str = "tracestate";
const REQUEST_ID: &str = "x-request-id";
const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// The body's word first, then the headers'.
pub fn call_context(mut context: CallContext, headers: &HeaderMap) -> CallContext {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    if context.request_id.is_none() {
        context.request_id = header(REQUEST_ID);
    }
    context.traceparent = header(TRACEPARENT).filter(|place| traces::is_valid(place));
    context.tracestate = context.traceparent.as_ref().and_then(|_| header(TRACESTATE));
    context
}

/// The id a client gave its call, or a new one.
pub fn call_id(given: Option<String>, headers: &HeaderMap) -> Result<CallId, Problem> {
    let key = headers.get(IDEMPOTENCY_KEY).map(|value| std::str::from_utf8(value.as_bytes()));
    let key = key.transpose().map_err(|_| {
        Problem::bad_request("bad-id", "the header idempotency-key must be UTF-8; take another key")
    })?;
    let id = match (given, key) {
        (Some(given), Some(key)) if given != key => {
            return Err(Problem::unprocessable(
                "callId and the header idempotency-key differ; send one of them",
            ));
        }
        (Some(given), _) => given,
        (None, Some(key)) => key.to_owned(),
        (None, None) => format!("c{:032x}", rand::random::<u128>()),
    };
    Ok(Id::new("call", id)?)
}
