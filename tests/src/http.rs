//! A client that is nobody special: plain HTTP, JSON bodies, server-sent events.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::http::Extensions;
use hyper::{Method, Request, Response};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::{CaptureConnection, HttpConnector, HttpInfo, capture_connection};
use hyper_util::rt::TokioExecutor;
use serde_json::Value;

/// A stream says something every 15 s, if only a comment. Whoever is silent twice as long is gone without a word.
const SILENCE: Duration = Duration::from_secs(30);

/// A connection that nobody used for so long may be closed by its server at any time, also while a request is on its way to it.
/// Every client asks again over a new one then, as this one does. What closes sooner was in use, and that is a failure.
const IDLE: Duration = Duration::from_secs(1);

#[derive(Clone)]
pub struct Http {
    client: Client<HttpConnector, Full<Bytes>>,
    /// Since when each connection, by its address on our side, has had nothing to do.
    idle: Arc<Mutex<HashMap<SocketAddr, Instant>>>,
    asked_again: Arc<AtomicUsize>,
}

impl Default for Http {
    fn default() -> Self {
        Self::patient(Duration::from_secs(2))
    }
}

impl Http {
    /// One that waits so long for a connection.
    pub fn patient(connect: Duration) -> Self {
        let client = Client::builder(TokioExecutor::new()).build(connector(connect));
        Self { client, idle: Arc::default(), asked_again: Arc::default() }
    }

    /// How many requests met an idle connection in the moment it was closed, and were sent again.
    pub fn asked_again(&self) -> usize {
        self.asked_again.load(Relaxed)
    }

    /// A response, and our side of its connection.
    async fn request(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<(Response<Incoming>, Option<SocketAddr>)> {
        let again = request.clone();
        match self.once(request).await {
            Err(broken) if broken.idle.is_some_and(|idle| idle >= IDLE) => {
                self.asked_again.fetch_add(1, Relaxed);
                Ok(self.once(again).await?)
            }
            done => Ok(done?),
        }
    }

    async fn once(
        &self,
        mut request: Request<Full<Bytes>>,
    ) -> std::result::Result<(Response<Incoming>, Option<SocketAddr>), Broken> {
        let captured = capture_connection(&mut request);
        let sent = Instant::now();
        let answer = self.client.request(request).await;
        let at = our_side(&captured);
        let since = at.and_then(|at| self.idle().remove(&at));
        let idle = since.map(|since| sent.saturating_duration_since(since));
        answer.map(|response| (response, at)).map_err(|error| Broken { error: error.into(), at, idle })
    }

    /// The answer is whole: its connection may be used again.
    fn rests(&self, connection: Option<SocketAddr>) {
        self.idle().extend(connection.map(|at| (at, Instant::now())));
    }

    fn idle(&self) -> MutexGuard<'_, HashMap<SocketAddr, Instant>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request that got no response.
struct Broken {
    error: anyhow::Error,
    at: Option<SocketAddr>,
    /// How long its connection had been idle; none for a new one.
    idle: Option<Duration>,
}

impl From<Broken> for anyhow::Error {
    fn from(broken: Broken) -> Self {
        let on = match (broken.at, broken.idle) {
            (None, _) => "without a connection".to_owned(),
            (Some(at), None) => format!("on a new connection, or right after a stream, from {at}"),
            (Some(at), Some(idle)) => format!("on a connection from {at} that was idle for {idle:.1?}"),
        };
        anyhow!("no response {on}: {:#}", broken.error)
    }
}

fn our_side(captured: &CaptureConnection) -> Option<SocketAddr> {
    let mut extras = Extensions::new();
    captured.connection_metadata().as_ref()?.get_extras(&mut extras);
    extras.get::<HttpInfo>().map(HttpInfo::local_addr)
}

fn connector(connect: Duration) -> HttpConnector {
    let mut connector = HttpConnector::new();
    connector.set_connect_timeout(Some(connect));
    connector.set_nodelay(true);
    connector
}

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub body: Value,
}

/// One event of a stream.
#[derive(Debug, Clone)]
pub struct Event {
    pub id: String,
    pub name: String,
    pub data: Value,
}

impl Http {
    pub async fn get(&self, url: &str) -> Result<Answer> {
        self.send(Method::GET, url, None, &[]).await
    }

    pub async fn post(&self, url: &str, body: &Value) -> Result<Answer> {
        self.send(Method::POST, url, Some(body), &[]).await
    }

    /// Bytes that are no JSON.
    pub async fn put_text(&self, url: &str, text: &str, headers: &[(&str, &str)]) -> Result<Answer> {
        let mut request = Request::builder().method(Method::PUT).uri(url);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.answer(request.body(Full::new(Bytes::from(text.to_owned())))?).await
    }

    pub async fn send(
        &self,
        method: Method,
        url: &str,
        body: Option<&Value>,
        headers: &[(&str, &str)],
    ) -> Result<Answer> {
        self.answer(request(method, url, body, headers)?).await
    }

    async fn answer(&self, request: Request<Full<Bytes>>) -> Result<Answer> {
        let (response, connection) = self.request(request).await?;
        let status = response.status().as_u16();
        let bytes = response.into_body().collect().await.context("the answer was cut")?.to_bytes();
        self.rests(connection);
        let body = if bytes.is_empty() {
            Value::Null
        } else {
            serde_json::from_slice(&bytes)
                .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).into()))
        };
        Ok(Answer { status, body })
    }

    /// Opens a stream of events. A refusal is the answer instead.
    pub async fn events(
        &self,
        method: Method,
        url: &str,
        body: Option<&Value>,
        last_event_id: Option<&str>,
    ) -> Result<std::result::Result<Events, Answer>> {
        let mut headers = vec![("accept", "text/event-stream")];
        headers.extend(last_event_id.map(|id| ("last-event-id", id)));
        let (response, connection) = self.request(request(method, url, body, &headers)?).await?;
        let status = response.status().as_u16();
        let kind = response.headers().get("content-type").map(|kind| kind.to_str().unwrap_or("").to_owned());
        if status == 200 && kind.is_some_and(|kind| kind.starts_with("text/event-stream")) {
            return Ok(Ok(Events { body: response.into_body(), buffer: Vec::new() }));
        }
        let bytes = response.into_body().collect().await.context("the answer was cut")?.to_bytes();
        self.rests(connection);
        Ok(Err(Answer { status, body: serde_json::from_slice(&bytes).unwrap_or(Value::Null) }))
    }
}

fn request(
    method: Method,
    url: &str,
    body: Option<&Value>,
    headers: &[(&str, &str)],
) -> Result<Request<Full<Bytes>>> {
    let mut builder = Request::builder().method(method).uri(url);
    for (name, value) in headers {
        builder = builder.header(*name, *value);
    }
    if body.is_some() {
        builder = builder.header("content-type", "application/json");
    }
    let bytes = body.map(|body| Bytes::from(body.to_string())).unwrap_or_default();
    Ok(builder.body(Full::new(bytes))?)
}

/// A stream being read.
pub struct Events {
    body: Incoming,
    buffer: Vec<u8>,
}

impl Events {
    /// The next event; `None` where the stream has ended. An error is a connection that was cut.
    pub async fn next(&mut self) -> Result<Option<Event>> {
        loop {
            if let Some(end) = self.buffer.windows(2).position(|pair| pair == b"\n\n") {
                let block: Vec<u8> = self.buffer.drain(..end + 2).collect();
                if let Some(event) = parse(&String::from_utf8_lossy(&block))? {
                    return Ok(Some(event));
                }
                continue;
            }
            let frame = tokio::time::timeout(SILENCE, self.body.frame());
            match frame.await.context("the stream fell silent")? {
                None => return Ok(None),
                Some(frame) => {
                    if let Ok(data) = frame.context("the stream was cut")?.into_data() {
                        self.buffer.extend_from_slice(&data);
                    }
                }
            }
        }
    }
}

/// `None` for a comment.
fn parse(block: &str) -> Result<Option<Event>> {
    let (mut id, mut name, mut data) = (String::new(), String::new(), String::new());
    for line in block.lines() {
        match line.split_once(':') {
            Some(("id", value)) => value.trim_start().clone_into(&mut id),
            Some(("event", value)) => value.trim_start().clone_into(&mut name),
            Some(("data", value)) => data.push_str(value.strip_prefix(' ').unwrap_or(value)),
            _ => {}
        }
    }
    if name.is_empty() {
        return Ok(None);
    }
    let Ok(data) = serde_json::from_str(&data) else { bail!("the data of {name} is not JSON: {data}") };
    Ok(Some(Event { id, name, data }))
}
