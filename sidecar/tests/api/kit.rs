//! Replicas on port 0, and a plain HTTP client.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use holdfast_crds::Script;
use holdfast_sidecar::api::auth::Auth;
use holdfast_sidecar::config::StopTimes;
use holdfast_sidecar::model::{Model, Scripted};
use holdfast_sidecar::serve::{self, Listeners, Service, Stop};
use holdfast_sidecar::session::{Sessions, Settings};
use holdfast_sidecar::store::{Limits, MemoryStore, Store};
use holdfast_sidecar::telemetry::{self, Measured, Metrics, Traces};
use holdfast_sidecar::tools::{NoTools, Tools};
use holdfast_sidecar::workspace::Workspace;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Longer than anything here takes, short enough to wait for once.
pub const SOON: Duration = Duration::from_secs(20);

pub async fn soon<T>(what: &str, wait: impl Future<Output = T>) -> T {
    timeout(SOON, wait).await.unwrap_or_else(|_| panic!("waited in vain for {what}"))
}

pub struct Setup {
    pub store: Arc<dyn Store>,
    pub model: Arc<dyn Model>,
    pub tools: Arc<dyn Tools>,
    pub workspace: Option<Workspace>,
    pub settings: Settings,
    pub times: StopTimes,
    pub stalled: Duration,
    pub auth: Auth,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            store: Arc::new(MemoryStore::new(Limits::default())),
            model: Arc::new(Scripted::new(Script::default(), SOON)),
            tools: Arc::new(NoTools),
            workspace: None,
            settings: Settings::default(),
            times: StopTimes { drain: SOON, tools: SOON, save: SOON, relay: SOON },
            stalled: SOON,
            auth: Auth::None,
        }
    }
}

impl Setup {
    pub fn limited(limits: Limits) -> Self {
        Self { store: Arc::new(MemoryStore::new(limits)), ..Self::default() }
    }

    pub fn with_model(model: impl Model) -> Self {
        Self { model: Arc::new(model), ..Self::default() }
    }

    pub async fn start(self) -> Replica {
        let listen = || async { TcpListener::bind("127.0.0.1:0").await.expect("a port") };
        let listeners = Listeners { clients: listen().await, platform: listen().await };
        let address = listeners.clients.local_addr().expect("an address");
        let platform = listeners.platform.local_addr().expect("an address");
        let mut settings = self.settings;
        settings.relay_timeout = self.times.relay;
        let (metrics, traces) = (Arc::new(Metrics::default()), Traces::default());
        let workspace = self.workspace.map(|files| telemetry::measured_files(&metrics, "client", &files));
        let sessions = Sessions::with_workspace(
            Arc::new(Measured::new(&metrics, &traces, self.store)),
            Arc::new(Measured::new(&metrics, &traces, self.model)),
            Arc::new(Measured::new(&metrics, &traces, self.tools)),
            settings,
            workspace,
        );
        let (stops, stopped) = mpsc::channel(4);
        let Self { auth, times, stalled, .. } = self;
        let service = Service { sessions: sessions.clone(), auth, metrics, times, stalled };
        let running = tokio::spawn(serve::run(service, listeners, stopped));
        Replica { address, platform, stops, running, sessions }
    }
}

pub async fn echo() -> Replica {
    Setup::default().start().await
}

/// A running replica. Dropping it stops nothing: the runtime of the test does.
pub struct Replica {
    pub address: SocketAddr,
    pub platform: SocketAddr,
    pub stops: mpsc::Sender<Stop>,
    pub running: JoinHandle<()>,
    pub sessions: Sessions,
}

impl Replica {
    pub async fn stop(&self, how: Stop) {
        self.stops.send(how).await.expect("still running");
    }

    pub async fn ended(self) {
        soon("the replica's end", self.running).await.expect("it ended well");
    }

    pub async fn get(&self, path: &str) -> Answer {
        send(self.address, Send::new(Method::GET, path)).await
    }

    pub async fn post(&self, path: &str, body: Value) -> Answer {
        send(self.address, Send::new(Method::POST, path).json(&body)).await
    }

    pub async fn delete(&self, path: &str) -> Answer {
        send(self.address, Send::new(Method::DELETE, path)).await
    }

    pub async fn send(&self, ask: Send) -> Answer {
        send(self.address, ask).await
    }

    pub async fn stream(&self, ask: Send) -> EventStream {
        EventStream::open(self.address, ask).await
    }

    pub async fn platform(&self, method: Method, path: &str) -> Answer {
        send(self.platform, Send::new(method, path)).await
    }
}

/// A request.
#[derive(Clone)]
pub struct Send {
    method: Method,
    path: String,
    headers: Vec<(&'static str, String)>,
    body: Bytes,
}

impl Send {
    pub fn new(method: Method, path: &str) -> Self {
        Self { method, path: path.to_owned(), headers: Vec::new(), body: Bytes::new() }
    }

    pub fn get(path: &str) -> Self {
        Self::new(Method::GET, path)
    }

    pub fn post(path: &str) -> Self {
        Self::new(Method::POST, path)
    }

    pub fn put(path: &str) -> Self {
        Self::new(Method::PUT, path)
    }

    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    pub fn json(self, body: &Value) -> Self {
        self.header("content-type", "application/json").body(body.to_string())
    }

    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }
}

#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().expect("ASCII"))
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    #[track_caller]
    pub fn ok(&self) -> Value {
        assert!(self.status.is_success(), "{self:?}");
        self.json()
    }

    /// Checks that it is this problem, and gives its document.
    #[track_caller]
    pub fn problem(&self, status: u16, name: &str) -> Value {
        assert_eq!(self.status.as_u16(), status, "{self:?}");
        assert_eq!(self.header("content-type"), Some("application/problem+json"));
        let problem = self.json();
        assert_eq!(problem["type"], format!("https://holdfast.dev/problems/{name}"), "{problem}");
        assert_eq!(problem["status"], status);
        for field in ["title", "detail", "instance"] {
            assert!(!problem[field].as_str().unwrap_or_default().is_empty(), "{field} in {problem}");
        }
        problem
    }
}

async fn open(address: SocketAddr, ask: Send) -> (http::Response<Incoming>, JoinHandle<()>) {
    let stream = TcpStream::connect(address).await.expect("connected");
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.expect("a handshake");
    let connection = tokio::spawn(async move {
        let _ = connection.await;
    });
    let mut request = Request::builder().method(ask.method).uri(ask.path).header("host", "agent");
    for (name, value) in ask.headers {
        request = request.header(name, value);
    }
    let request = request.body(Full::new(ask.body)).expect("a request");
    (sender.send_request(request).await.expect("an answer"), connection)
}

pub async fn send(address: SocketAddr, ask: Send) -> Answer {
    let what = format!("{} {}", ask.method, ask.path);
    soon(&what, async {
        let (response, _connection) = open(address, ask).await;
        let (parts, body) = response.into_parts();
        let body = body.collect().await.expect("a whole body").to_bytes();
        Answer { status: parts.status, headers: parts.headers, body }
    })
    .await
}

#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    pub id: String,
    pub name: String,
    pub data: Value,
}

/// Server-sent events, read one by one. Dropping it hangs up.
pub struct EventStream {
    pub headers: HeaderMap,
    body: Incoming,
    buffer: String,
    pending: VecDeque<Event>,
    connection: JoinHandle<()>,
}

impl Drop for EventStream {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

impl EventStream {
    async fn open(address: SocketAddr, ask: Send) -> Self {
        let (response, connection) = soon("a stream", open(address, ask)).await;
        let (parts, body) = response.into_parts();
        let media_type = parts.headers.get("content-type").map(|value| value.as_bytes());
        if media_type != Some(b"text/event-stream") {
            let body = body.collect().await.expect("a body").to_bytes();
            panic!("not a stream: {} {body:?}", parts.status);
        }
        assert_eq!(parts.status, StatusCode::OK);
        Self { headers: parts.headers, body, buffer: String::new(), pending: VecDeque::new(), connection }
    }

    /// The next event; `None` when the stream has ended.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.pending.pop_front() {
                return Some(event);
            }
            let frame = soon("an event", self.body.frame()).await?;
            let data = frame.expect("an unbroken stream").into_data().expect("data");
            self.buffer.push_str(std::str::from_utf8(&data).expect("UTF-8"));
            while let Some(end) = self.buffer.find("\n\n") {
                let block: String = self.buffer.drain(..end + 2).collect();
                let field = |name: &str| {
                    let lines = block.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
                    lines.collect::<Vec<_>>().join("\n")
                };
                if block.starts_with(':') {
                    continue;
                }
                let data = serde_json::from_str(&field("data")).expect("JSON");
                self.pending.push_back(Event { id: field("id"), name: field("event"), data });
            }
        }
    }

    /// Reads on to the first event of this name.
    pub async fn until(&mut self, name: &str) -> Event {
        let mut seen = Vec::new();
        while let Some(event) = self.next().await {
            if event.name == name {
                return event;
            }
            seen.push(event.name);
        }
        panic!("the stream ended without {name}, after {seen:?}");
    }

    pub async fn rest(mut self) -> Vec<Event> {
        let mut events = Vec::new();
        while let Some(event) = self.next().await {
            events.push(event);
        }
        events
    }
}

/// For each message, its deltas since its last reset are its text. Of a stream that was seen from its start.
#[track_caller]
pub fn check_whole(events: &[Event]) {
    let mut texts = std::collections::HashMap::<String, String>::new();
    let mut ids = std::collections::HashSet::new();
    for event in events {
        assert!(ids.insert(event.id.clone()), "an id twice: {event:?}");
        assert!(event.data["callId"].is_string(), "{event:?}");
        let message = event.data["messageId"].as_str().unwrap_or_default().to_owned();
        match event.name.as_str() {
            "message.delta" => {
                texts.entry(message).or_default().push_str(event.data["text"].as_str().expect("text"));
            }
            "message.reset" => {
                texts.remove(&message);
            }
            "message.completed" => {
                let blocks = event.data["message"]["content"].as_array().expect("blocks");
                let text: String = blocks.iter().filter_map(|block| block["text"].as_str()).collect();
                assert_eq!(texts.remove(&message).unwrap_or_default(), text, "{events:#?}");
            }
            _ => {}
        }
    }
    assert_eq!(texts.len(), 0, "text without its message: {texts:?}");
    let last = events.last().expect("events");
    assert!(matches!(last.name.as_str(), "call.completed" | "call.interrupted" | "call.failed"), "{last:?}");
}
