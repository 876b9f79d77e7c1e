//! The requests of the streamable HTTP transport, through `outbound`.
//!
//! Never sends a message twice, but for a 401 after which the Secrets turn out to have changed: who is not let in has not
//! been heard.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use rmcp::ErrorData;
use rmcp::model::{ClientJsonRpcMessage, ClientRequest, GetMeta, ServerJsonRpcMessage};
use rmcp::transport::common::http_header::{HEADER_LAST_EVENT_ID, HEADER_SESSION_ID};
use rmcp::transport::streamable_http_client::{
    HttpStatusError, SseError, StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse,
};
use sse_stream::{Sse, SseStream};

use super::IDEMPOTENCY_KEY;
use crate::outbound::{Credentials, Outbound, OutboundError, Spliced, read_bounded};

/// No result of a tool may be larger.
pub(super) const MAX_ANSWER: usize = 16 << 20;
const MAX_ERROR: usize = 4 << 10;

type Failure = StreamableHttpError<OutboundError>;
type Events = BoxStream<'static, Result<Sse, SseError>>;

#[derive(Clone)]
pub(super) struct McpHttp {
    outbound: Outbound,
    credentials: Arc<Credentials>,
}

impl McpHttp {
    pub(super) fn new(outbound: Outbound, credentials: Credentials) -> Self {
        Self { outbound, credentials: Arc::new(credentials) }
    }

    async fn send(
        &self,
        method: Method,
        uri: &str,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Response<Incoming>, Failure> {
        let mut reread = false;
        loop {
            let mut request = Request::new(Spliced::from(body.clone()));
            *request.method_mut() = method.clone();
            *request.uri_mut() = uri
                .parse()
                .map_err(|_| Failure::UnexpectedServerResponse("the address is not valid".into()))?;
            *request.headers_mut() = self.credentials.headers();
            request.headers_mut().extend(headers.clone());
            let response = self.outbound.send(request).await.map_err(Failure::Client)?;
            if response.status() == StatusCode::UNAUTHORIZED && !reread && self.credentials.reread() {
                reread = true;
                continue;
            }
            return Ok(response);
        }
    }

    async fn refusal(&self, response: Response<Incoming>) -> Failure {
        let status = response.status();
        if status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error() {
            let after = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
            return HttpStatusError::new(status.as_u16(), after.map(str::to_owned)).into();
        }
        let said = read_bounded(response.into_body(), MAX_ERROR).await.unwrap_or_default();
        let said = self.credentials.redact(&String::from_utf8_lossy(&said));
        Failure::UnexpectedServerResponse(format!("HTTP {status}: {said}").into())
    }
}

impl StreamableHttpClient for McpHttp {
    type Error = OutboundError;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, Failure> {
        self.post_message_with_max_sse_event_size(
            uri,
            message,
            session_id,
            auth_header,
            custom_headers,
            MAX_ANSWER,
        )
        .await
    }

    async fn post_message_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
        max_sse_event_size: usize,
    ) -> Result<StreamableHttpPostResponse, Failure> {
        let body = Bytes::from(serde_json::to_vec(&message)?);
        let in_session = session_id.is_some();
        let mut headers = request_headers(session_id, auth_header, custom_headers);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        describe_call(&message, &mut headers);
        let response = self.send(Method::POST, &uri, headers, body).await?;
        let status = response.status();
        match status {
            StatusCode::ACCEPTED | StatusCode::NO_CONTENT => return Ok(StreamableHttpPostResponse::Accepted),
            StatusCode::NOT_FOUND if in_session => return Err(StreamableHttpError::SessionExpired),
            _ if !status.is_success() => {
                let legacy = speaks_only_the_older_protocol(&message, in_session, status);
                if legacy.is_none() {
                    return Err(self.refusal(response).await);
                }
                let said = read_bounded(response.into_body(), MAX_ERROR).await.unwrap_or_default();
                return Ok(StreamableHttpPostResponse::Json(
                    discovery_refused(&message, status, &said),
                    None,
                ));
            }
            _ => {}
        }
        let session_id =
            response.headers().get(HEADER_SESSION_ID).and_then(|id| id.to_str().ok()).map(str::to_owned);
        let expects_answer = matches!(message, ClientJsonRpcMessage::Request(_));
        match content_type(&response) {
            Kind::Events => Ok(StreamableHttpPostResponse::Sse(
                events(response.into_body(), max_sse_event_size),
                session_id,
            )),
            // What answers a notification does not matter.
            _ if !expects_answer => Ok(StreamableHttpPostResponse::Accepted),
            Kind::Json => {
                let body = read_bounded(response.into_body(), MAX_ANSWER).await.map_err(Failure::Client)?;
                Ok(StreamableHttpPostResponse::Json(serde_json::from_slice(&body)?, session_id))
            }
            Kind::Other(kind) => Err(StreamableHttpError::UnexpectedContentType(kind)),
        }
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session_id: Arc<str>,
        auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), Failure> {
        let headers = request_headers(Some(session_id), auth_header, custom_headers);
        let response = self.send(Method::DELETE, &uri, headers, Bytes::new()).await?;
        match response.status() {
            StatusCode::METHOD_NOT_ALLOWED => Err(StreamableHttpError::ServerDoesNotSupportDeleteSession),
            status if status.is_success() || status == StatusCode::NOT_FOUND => Ok(()),
            _ => Err(self.refusal(response).await),
        }
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<Events, Failure> {
        self.get_stream_with_max_sse_event_size(
            uri,
            session_id,
            last_event_id,
            auth_header,
            custom_headers,
            MAX_ANSWER,
        )
        .await
    }

    async fn get_stream_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
        max_sse_event_size: usize,
    ) -> Result<Events, Failure> {
        let mut headers = request_headers(session_id, auth_header, custom_headers);
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        if let Some(Ok(id)) = last_event_id.map(HeaderValue::try_from) {
            headers.insert(HEADER_LAST_EVENT_ID, id);
        }
        let response = self.send(Method::GET, &uri, headers, Bytes::new()).await?;
        match (response.status(), content_type(&response)) {
            (StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_FOUND, _) => {
                Err(StreamableHttpError::ServerDoesNotSupportSse)
            }
            (status, Kind::Events) if status.is_success() => {
                Ok(events(response.into_body(), max_sse_event_size))
            }
            (status, Kind::Json | Kind::Other(_)) if status.is_success() => {
                Err(StreamableHttpError::ServerDoesNotSupportSse)
            }
            _ => Err(self.refusal(response).await),
        }
    }
}

fn request_headers(
    session_id: Option<Arc<str>>,
    auth_header: Option<String>,
    custom_headers: HashMap<HeaderName, HeaderValue>,
) -> HeaderMap {
    let mut headers: HeaderMap = custom_headers.into_iter().collect();
    if let Some(Ok(token)) = auth_header.map(|token| HeaderValue::try_from(format!("Bearer {token}"))) {
        headers.insert(AUTHORIZATION, token);
    }
    if let Some(Ok(id)) = session_id.map(|id| HeaderValue::from_str(&id)) {
        headers.insert(HEADER_SESSION_ID, id);
    }
    headers
}

/// What stands in a call's `_meta` and is of use to whoever sees only headers.
fn describe_call(message: &ClientJsonRpcMessage, headers: &mut HeaderMap) {
    let ClientJsonRpcMessage::Request(request) = message else { return };
    let ClientRequest::CallToolRequest(call) = &request.request else { return };
    let meta = call.params.meta.as_ref().unwrap_or_else(|| request.request.get_meta());
    let shown =
        [(IDEMPOTENCY_KEY, "idempotency-key"), ("traceparent", "traceparent"), ("tracestate", "tracestate")];
    for (field, header) in shown {
        let value = meta.0.0.get(field).and_then(serde_json::Value::as_str);
        if let Some(Ok(value)) = value.map(HeaderValue::from_str) {
            headers.insert(HeaderName::from_static(header), value);
        }
    }
}

/// A server of the older era refuses the newer one's first question in whatever way it refuses what it does not know.
fn speaks_only_the_older_protocol(
    message: &ClientJsonRpcMessage,
    in_session: bool,
    status: StatusCode,
) -> Option<()> {
    let refused = status.is_client_error()
        && !matches!(
            status,
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::TOO_MANY_REQUESTS
        );
    let ClientJsonRpcMessage::Request(request) = message else { return None };
    let discovers = matches!(request.request, ClientRequest::DiscoverRequest(_));
    (refused && discovers && !in_session).then_some(())
}

/// That refusal as an answer which the client's handshake understands.
fn discovery_refused(
    message: &ClientJsonRpcMessage,
    status: StatusCode,
    said: &[u8],
) -> ServerJsonRpcMessage {
    let id = match message {
        ClientJsonRpcMessage::Request(request) => Some(request.id.clone()),
        _ => None,
    };
    let error = match serde_json::from_slice(said) {
        Ok(ServerJsonRpcMessage::Error(error)) => error.error,
        _ => ErrorData::invalid_request(format!("server/discover was refused with status {status}"), None),
    };
    ServerJsonRpcMessage::error(error, id)
}

enum Kind {
    Events,
    Json,
    Other(Option<String>),
}

fn content_type<T>(response: &Response<T>) -> Kind {
    let kind =
        response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).map(str::to_ascii_lowercase);
    match kind.as_deref() {
        Some(kind) if kind.starts_with("text/event-stream") => Kind::Events,
        Some(kind) if kind.starts_with("application/json") => Kind::Json,
        _ => Kind::Other(kind),
    }
}

/// Events of a body. More than `limit` bytes without the end of an event end it.
fn events(body: Incoming, limit: usize) -> Events {
    let mut unfinished = 0usize;
    let bounded = body.into_data_stream().map(move |chunk| {
        let chunk = chunk.map_err(|error| OutboundError::Broken(error.to_string()))?;
        unfinished += chunk.len();
        if chunk.windows(2).any(|pair| pair == b"\n\n") || chunk.windows(4).any(|four| four == b"\r\n\r\n") {
            unfinished = 0;
        }
        if unfinished > limit { Err(OutboundError::TooLarge(limit)) } else { Ok(chunk) }
    });
    SseStream::from_bytes_stream(bounded).boxed()
}
