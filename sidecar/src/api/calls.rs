//! Calls: started, joined, looked at and retried.

use axum::Json;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::header::{ACCEPT, LOCATION};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, StatusCode};
use serde::Deserialize;

use super::App;
use super::address::{Address, CallAddress, encode};
use super::body;
use super::context::{call_context, call_id};
use super::problem::Problem;
use super::sse;
use crate::model::CallContext;
use crate::session::{Admitted, CallError, CallRequest, CallView, News};
use crate::state::{CallId, Message, Slot, check_pairing};
use crate::store::EventId;

const LAST_EVENT_ID: &str = "last-event-id";

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CallBody {
    messages: Option<Vec<Message>>,
    input: Option<String>,
    #[serde(default)]
    stream: bool,
    #[serde(default)]
    background: bool,
    call_id: Option<String>,
    #[serde(default)]
    context: CallContext,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RetryBody {
    stream: bool,
    background: bool,
    context: CallContext,
}

/// How a client wants its answer.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Form {
    Whole,
    Stream,
    Background,
}

impl Form {
    fn asked(stream: bool, background: bool) -> Self {
        match (background, stream) {
            (true, _) => Self::Background,
            (false, true) => Self::Stream,
            (false, false) => Self::Whole,
        }
    }
}

pub async fn start(
    State(app): State<App>,
    Address(slot): Address,
    request: Request,
) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    let asked: CallBody = body::json(&parts, body, body::MAX_CALL_BYTES).await?;
    let call = call_id(asked.call_id, &parts.headers)?;
    let stream = asked.stream || accepts_events(&parts.headers);
    let request = CallRequest {
        call: call.clone(),
        messages: said(asked.messages, asked.input)?,
        context: call_context(asked.context, &parts.headers),
        stream,
    };
    let admitted = app.sessions().call(&slot, request).await.map_err(about(&call))?;
    answer(&app, &parts, slot, call, admitted, Form::asked(stream, asked.background)).await
}

pub async fn retry(
    State(app): State<App>,
    CallAddress { slot, call }: CallAddress,
    request: Request,
) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    let asked: RetryBody = body::json_or_default(&parts, body, body::MAX_SMALL_BYTES).await?;
    let stream = asked.stream || accepts_events(&parts.headers);
    let context = call_context(asked.context, &parts.headers);
    let admitted = app.sessions().retry(&slot, &call, &context, stream).await.map_err(about(&call))?;
    answer(&app, &parts, slot, call, admitted, Form::asked(stream, asked.background)).await
}

pub async fn live(State(app): State<App>, Address(slot): Address) -> Result<Json<Vec<CallView>>, Problem> {
    Ok(Json(app.sessions().live(&slot).await?))
}

pub async fn one(
    State(app): State<App>,
    CallAddress { slot, call }: CallAddress,
) -> Result<Json<CallView>, Problem> {
    Ok(Json(app.sessions().status(&slot, &call).await.map_err(about(&call))?))
}

pub async fn events(
    State(app): State<App>,
    CallAddress { slot, call }: CallAddress,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let after = last_event_id(&headers)?;
    app.sessions().knows(&slot, &call).await.map_err(about(&call))?;
    Ok(sse::response(app.sessions(), slot, call, after))
}

async fn answer(
    app: &App,
    parts: &Parts,
    slot: Slot,
    call: CallId,
    admitted: Admitted,
    form: Form,
) -> Result<Response, Problem> {
    match form {
        Form::Stream => {
            let after = last_event_id(&parts.headers)?;
            let mut response = match admitted {
                Admitted::Live(follower) if after.is_none() => sse::following(app.sessions(), slot, follower),
                _ => sse::response(app.sessions(), slot, call.clone(), after),
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
            Ok(Json(CallView::done(&call, &reply)?).into_response())
        }
    }
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
