//! Calls: started, joined, looked at and retried.

use axum::Json;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::header::{ACCEPT, LOCATION};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, StatusCode};
use serde::Deserialize;
use utoipa::ToSchema;

use super::App;
use super::address::{Address, CallAddress, encode};
use super::body;
use super::context::{call_context, call_id};
use super::problem::Problem;
use super::schema;
use super::sse;
use crate::model::CallContext;
use crate::session::{Admitted, CallError, CallRequest, CallView, News};
use crate::state::{CallId, Message, Slot, check_pairing};
use crate::store::EventId;
use crate::telemetry::logs_content;
use crate::telemetry::traces::Span;

const LAST_EVENT_ID: &str = "last-event-id";

/// `messages` or `input`, and how to answer.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CallBody {
    #[schema(value_type = Option<Vec<schema::Message>>, min_items = 1)]
    messages: Option<Vec<Message>>,
    /// Short for one user message.
    #[schema(example = "hello")]
    input: Option<String>,
    /// Answer with events. So does `accept: text/event-stream`.
    #[serde(default)]
    stream: bool,
    /// Answer at once, with where to look later.
    #[serde(default)]
    background: bool,
    /// The same id is the same call, however often it is sent. Without one the server makes one.
    #[schema(min_length = 1, max_length = 512)]
    call_id: Option<String>,
    #[serde(default)]
    #[schema(value_type = Option<schema::Context>, nullable = false)]
    context: CallContext,
}

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RetryBody {
    stream: bool,
    background: bool,
    #[schema(value_type = Option<schema::Context>, nullable = false)]
    context: CallContext,
}

/// How a client wants its answer.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Form {
    Whole,
    /// After this event, where the client has seen some before.
    Stream(Option<EventId>),
    Background,
}

impl Form {
    fn asked(stream: bool, background: bool, headers: &HeaderMap) -> Result<Self, Problem> {
        Ok(match (background, stream) {
            (true, _) => Self::Background,
            (false, true) => Self::Stream(last_event_id(headers)?),
            (false, false) => Self::Whole,
        })
    }
}

/// Sends messages and gets the answer: whole, as events, or later.
#[utoipa::path(post, path = "/S/calls", operation_id = "start_call", request_body = CallBody,
    params(("idempotency-key" = Option<String>, Header, min_length = 1, max_length = 512, description = "The callId, if the body has none")),
    responses(
        (status = 200, description = "The call, ended; or, streamed, its events", content((schema::Call = "application/json"), (serde_json::Value = "text/event-stream"))),
        (status = 202, description = "Taken, in the background", body = schema::Call, headers(("location" = String, description = "Where the call is"))),
        (status = 409, description = "`call-conflict`: this callId was used with other messages; `session-busy`"),
        (status = 410, description = "`reply-expired`, `session-deleted`"),
        (status = 429, description = "`queue-full`, `overloaded`, with `Retry-After`; nothing was admitted"),
    ))]
pub async fn start(
    State(app): State<App>,
    Address(slot): Address,
    request: Request,
) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    let asked: CallBody = body::json(&parts, body, body::MAX_CALL_BYTES).await?;
    let call = call_id(asked.call_id, &parts.headers)?;
    let stream = asked.stream || accepts_events(&parts.headers);
    let form = Form::asked(stream, asked.background, &parts.headers)?;
    let mut context = call_context(asked.context, &parts.headers);
    let span = app.trace("/v1/calls", &mut context);
    let request =
        CallRequest { call: call.clone(), messages: said(asked.messages, asked.input)?, context, stream };
    if logs_content() {
        let said: Vec<String> = request.messages.iter().map(Message::text).collect();
        tracing::info!(call = %call.shown(), session = %slot, request = ?request.context.request_id, ?said, "asked");
    }
    let admitted = app.sessions().call(&slot, request).await.map_err(about(&call));
    traced(span, answer(&app, &parts, slot, call, admitted, form).await)
}

/// Goes on from the last good step of a failed call.
#[utoipa::path(post, path = "/S/calls/{call}/retry", operation_id = "retry_call", request_body = Option<RetryBody>,
    responses(
        (status = 200, description = "The call, ended; or, streamed, its events", content((schema::Call = "application/json"), (serde_json::Value = "text/event-stream"))),
        (status = 202, description = "Taken, in the background", body = schema::Call, headers(("location" = String, description = "Where the call is"))),
        (status = 404, description = "`no-such-call`"),
        (status = 409, description = "`not-retryable`, `session-busy`"),
        (status = 429, description = "`overloaded`"),
    ))]
pub async fn retry(
    State(app): State<App>,
    CallAddress { slot, call }: CallAddress,
    request: Request,
) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    let asked: RetryBody = body::json_or_default(&parts, body, body::MAX_SMALL_BYTES).await?;
    let stream = asked.stream || accepts_events(&parts.headers);
    let form = Form::asked(stream, asked.background, &parts.headers)?;
    let mut context = call_context(asked.context, &parts.headers);
    let span = app.trace("/v1/calls/{call}/retry", &mut context);
    let admitted = app.sessions().retry(&slot, &call, &context, stream).await.map_err(about(&call));
    traced(span, answer(&app, &parts, slot, call, admitted, form).await)
}

/// The calls of a session that wait, run or are suspended, oldest first.
#[utoipa::path(get, path = "/S/calls", operation_id = "list_calls",
    responses(
        (status = 200, description = "The live calls", body = Vec<schema::Call>),
    ))]
pub async fn live(State(app): State<App>, Address(slot): Address) -> Result<Json<Vec<CallView>>, Problem> {
    Ok(Json(app.sessions().live(&slot).await?))
}

/// One call.
#[utoipa::path(get, path = "/S/calls/{call}", operation_id = "get_call",
    responses(
        (status = 200, description = "The call", body = schema::Call),
        (status = 404, description = "`no-such-call`: unknown, or past `replyTtl`"),
    ))]
pub async fn one(
    State(app): State<App>,
    CallAddress { slot, call }: CallAddress,
) -> Result<Json<CallView>, Problem> {
    Ok(Json(app.sessions().status(&slot, &call).await.map_err(about(&call))?))
}

/// The events of a call, from its first or after `Last-Event-ID`, until it ends.
#[utoipa::path(get, path = "/S/calls/{call}/events", operation_id = "follow_call",
    params(("last-event-id" = Option<String>, Header, pattern = r"^([0-9]+-[0-9]+(\..*)?)?$", description = "An `id:` of this call")),
    responses(
        (status = 200, description = "The events", body = serde_json::Value, content_type = "text/event-stream"),
        (status = 400, description = "`bad-event-id`, `bad-id`, `bad-encoding`"),
        (status = 404, description = "`no-such-call`"),
    ))]
pub async fn events(
    State(app): State<App>,
    CallAddress { slot, call }: CallAddress,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let after = last_event_id(&headers)?;
    app.sessions().knows(&slot, &call).await.map_err(about(&call))?;
    Ok(sse::response(app.sessions(), slot, &call, after))
}

async fn answer(
    app: &App,
    parts: &Parts,
    slot: Slot,
    call: CallId,
    admitted: Result<Admitted, Problem>,
    form: Form,
) -> Result<Response, Problem> {
    let admitted = admitted?;
    match form {
        Form::Stream(after) => {
            let mut response = match admitted {
                Admitted::Live(follower) if after.is_none() => sse::following(app.sessions(), slot, follower),
                _ => sse::response(app.sessions(), slot, &call, after),
            };
            response.headers_mut().insert(LOCATION, location(parts, &call)?);
            Ok(response)
        }
        Form::Background => {
            let view = match admitted {
                Admitted::Done(reply) => CallView::done(&call, &reply)?,
                Admitted::Live(_) => app.sessions().status(&slot, &call).await.map_err(about(&call))?,
            };
            Ok((StatusCode::ACCEPTED, [(LOCATION, location(parts, &call)?)], Json(view)).into_response())
        }
        Form::Whole => {
            let reply = match admitted {
                Admitted::Done(reply) => reply,
                Admitted::Live(mut follower) => match follower.outcome().await.map_err(about(&call))? {
                    News::Ended(reply) => reply,
                    News::LetGo | News::Events(_) | News::Gap(_) => {
                        return Err(about(&call)(CallError::Draining { admitted: true }));
                    }
                },
            };
            let view = CallView::done(&call, &reply)?;
            if logs_content() {
                tracing::info!(call = %call.shown(), session = %slot, said = view.text, "answered");
            }
            Ok(Json(view).into_response())
        }
    }
}

/// What a request's span says in the end. A stream's ends with its head: the call has spans of its own.
fn traced(mut span: Span, answer: Result<Response, Problem>) -> Result<Response, Problem> {
    let status = answer.as_ref().map_or_else(|problem| problem.status, Response::status);
    span.set("http.response.status_code", i64::from(status.as_u16()));
    if status.is_server_error() {
        span.fail(answer.as_ref().map_or_else(|problem| problem.name, |_| "internal"));
    }
    answer
}

fn about(call: &CallId) -> impl FnOnce(CallError) -> Problem {
    move |error| Problem::from(error).about(call)
}

/// The messages of a call, with nothing in them that only a server may say.
fn said(messages: Option<Vec<Message>>, input: Option<String>) -> Result<Vec<Message>, Problem> {
    let mut messages = match (messages, input) {
        (Some(messages), None) => messages,
        (None, Some(input)) => vec![Message::user(input)],
        (Some(_), Some(_)) => {
            return Err(Problem::unprocessable(
                "input is short for one message; send input or messages, not both",
            ));
        }
        (None, None) => {
            return Err(Problem::unprocessable("there is nothing to answer; send input or messages"));
        }
    };
    if messages.is_empty() {
        return Err(Problem::unprocessable("messages is empty; send at least one"));
    }
    check_pairing(&messages).map_err(|error| Problem::unprocessable(error.to_string()))?;
    for message in &mut messages {
        message.id = crate::state::fresh_message_id();
        (message.timestamp, message.usage, message.interrupted) = (None, None, false);
        message.set_stop_reason(None);
        message.set_model(None);
    }
    Ok(messages)
}

fn accepts_events(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accepted.into_iter().any(|value| value.contains("text/event-stream"))
}

fn last_event_id(headers: &HeaderMap) -> Result<Option<EventId>, Problem> {
    let Some(value) = headers.get(LAST_EVENT_ID) else { return Ok(None) };
    let given = value.to_str().unwrap_or_default();
    if given.is_empty() {
        return Ok(None);
    }
    sse::parse_id(given).map(Some).map_err(|error| Problem::bad_request("bad-event-id", error.to_string()))
}

/// Where the call of this request can be asked for later.
fn location(parts: &Parts, call: &CallId) -> Result<HeaderValue, Problem> {
    let path = parts.uri.path();
    let path = match path.strip_suffix("/retry") {
        Some(path) => path.to_owned(),
        None => format!("{path}/{}", encode(call.as_str())),
    };
    HeaderValue::try_from(path).map_err(|_| Problem::no_route())
}
