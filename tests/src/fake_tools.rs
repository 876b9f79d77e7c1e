//! A tool server made for tests: MCP by streamable HTTP over a real socket, of the era with sessions.
//!
//! Every tool does what its arguments order, so that suites which drive the product from outside need no second channel:
//! `{"delayMs":50}` takes its time, `{"fail":"why"}` answers with an error, `{"hangUp":true}` does its work and then breaks the
//! connection, `{"image":true}` returns a picture too, `{"say":"…"}` answers with it.
//!
//! The ledger holds, for every execution, `executed` (tool, arguments, idempotency key, `_meta`) before anything else
//! happens, `returned` when its answer is on its way, and `cancelled` for every cancellation that came.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::broadcast;
use tokio::task::JoinHandle;

use crate::ledger::Ledger;
use crate::serve::{FakeBody, HangUp, plain, serve};

const SESSION: &str = "mcp-session-id";
const JSON: &str = "application/json";

/// Serves until it is dropped.
pub struct FakeTools {
    pub address: SocketAddr,
    shared: Arc<Shared>,
    serving: JoinHandle<()>,
}

struct Shared {
    ledger: Ledger,
    tools: Mutex<BTreeMap<String, Value>>,
    sessions: Mutex<BTreeSet<String>>,
    next_session: AtomicU64,
    changed: broadcast::Sender<()>,
    page_size: usize,
    /// Answers calls by events instead of in one piece.
    by_events: AtomicBool,
    /// Lets only those in who bring this `Authorization`.
    door: Mutex<Option<String>>,
}

/// A tool as `tools/list` has it.
pub fn tool(name: &str, required: &[&str], annotations: &Value) -> (String, Value) {
    let described = json!({
        "name": name, "description": format!("The fake tool {name}"), "annotations": annotations,
        "inputSchema": {"type": "object", "properties": {"order": {"type": "integer"}}, "required": required},
    });
    (name.to_owned(), described)
}

impl FakeTools {
    /// Keeps what it does in memory.
    pub async fn start(tools: impl IntoIterator<Item = (String, Value)>) -> anyhow::Result<Self> {
        Self::serve(TcpListener::bind("127.0.0.1:0").await?, tools, Ledger::in_memory())
    }

    /// `lookup` (read-only), `put` (idempotent) and `refund` (neither), with nothing kept but `ledger`.
    pub async fn witness(listen: SocketAddr, ledger: Ledger) -> anyhow::Result<Self> {
        let tools = [
            tool("lookup", &[], &json!({"readOnlyHint": true})),
            tool("put", &[], &json!({"idempotentHint": true})),
            tool("refund", &[], &json!({})),
        ];
        Self::serve(TcpListener::bind(listen).await?, tools, ledger)
    }

    pub fn serve(
        listener: TcpListener,
        tools: impl IntoIterator<Item = (String, Value)>,
        ledger: Ledger,
    ) -> anyhow::Result<Self> {
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            ledger,
            tools: Mutex::new(tools.into_iter().collect()),
            sessions: Mutex::default(),
            next_session: AtomicU64::new(0),
            changed: broadcast::channel(16).0,
            page_size: 2,
            by_events: AtomicBool::new(false),
            door: Mutex::default(),
        });
        let answering = Arc::clone(&shared);
        let serving = tokio::spawn(serve(listener, move |request| handle(request, Arc::clone(&answering))));
        Ok(Self { address, shared, serving })
    }

    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    pub fn ledger(&self) -> &Ledger {
        &self.shared.ledger
    }

    /// Executions so far, of one tool.
    pub fn executions(&self, tool: &str) -> Vec<Value> {
        let records = self.shared.ledger.records().into_iter();
        records.filter(|record| record["event"] == "executed" && record["tool"] == tool).collect()
    }

    /// Offers another tool, and says so to whoever listens.
    pub fn add(&self, tool: (String, Value)) {
        lock(&self.shared.tools).insert(tool.0, tool.1);
        let _ = self.shared.changed.send(());
    }

    /// As after a restart: nobody's session is known any more.
    pub fn forget_sessions(&self) {
        lock(&self.shared.sessions).clear();
    }

    pub fn answer_by_events(&self) {
        self.shared.by_events.store(true, SeqCst);
    }

    pub fn let_in_only(&self, authorization: &str) {
        *lock(&self.shared.door) = Some(authorization.to_owned());
    }
}

impl Drop for FakeTools {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn handle(request: Request<Incoming>, shared: Arc<Shared>) -> Result<Response<FakeBody>, HangUp> {
    let (head, body) = request.into_parts();
    let header = |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    if let Some(wanted) = lock(&shared.door).as_ref()
        && header("authorization").as_ref() != Some(wanted)
    {
        return Ok(plain(StatusCode::UNAUTHORIZED, JSON, "{\"error\":\"who are you?\"}"));
    }
    let session = header(SESSION);
    let known = session.as_ref().is_some_and(|session| lock(&shared.sessions).contains(session));
    match head.method {
        Method::GET if known => return Ok(changes(&shared)),
        Method::GET => return Ok(plain(StatusCode::NOT_FOUND, JSON, "{}")),
        Method::DELETE => {
            lock(&shared.sessions).remove(&session.unwrap_or_default());
            return Ok(plain(StatusCode::OK, JSON, "{}"));
        }
        _ => {}
    }
    let Ok(collected) = body.collect().await else { return Err(HangUp) };
    let Ok(message) = serde_json::from_slice::<Value>(&collected.to_bytes()) else {
        return Ok(plain(StatusCode::BAD_REQUEST, JSON, "{}"));
    };
    let id = message["id"].clone();
    let method = message["method"].as_str().unwrap_or_default();
    if method == "initialize" {
        return Ok(initialised(&shared, &message));
    }
    if !known {
        let (status, why) = match session {
            Some(_) => (StatusCode::NOT_FOUND, "Session not found"),
            None => (StatusCode::BAD_REQUEST, "Missing session ID"),
        };
        let error =
            json!({"jsonrpc": "2.0", "id": "server-error", "error": {"code": -32600, "message": why}});
        return Ok(plain(status, JSON, &error.to_string()));
    }
    match method {
        "notifications/cancelled" => {
            shared.ledger.write(json!({"event": "cancelled", "request": message["params"]["requestId"]}));
            Ok(plain(StatusCode::ACCEPTED, JSON, ""))
        }
        _ if id.is_null() => Ok(plain(StatusCode::ACCEPTED, JSON, "")),
        "ping" => Ok(answered(&shared, &id, &json!({}))),
        "tools/list" => Ok(answered(&shared, &id, &listed(&shared, &message["params"]))),
        "tools/call" => called(&shared, &message, header("idempotency-key")).await,
        _ => {
            let error =
                json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "no such method"}});
            Ok(plain(StatusCode::OK, JSON, &error.to_string()))
        }
    }
}

fn initialised(shared: &Shared, message: &Value) -> Response<FakeBody> {
    let session = format!("s-{}", shared.next_session.fetch_add(1, SeqCst));
    lock(&shared.sessions).insert(session.clone());
    let result = json!({
        "protocolVersion": message["params"]["protocolVersion"],
        "capabilities": {"tools": {"listChanged": true}}, "serverInfo": {"name": "fake", "version": "1"},
    });
    let mut response = answered(shared, &message["id"], &result);
    if let Ok(session) = HeaderValue::from_str(&session) {
        response.headers_mut().insert(SESSION, session);
    }
    response
}

fn answered(shared: &Shared, id: &Value, result: &Value) -> Response<FakeBody> {
    let message = json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string();
    if shared.by_events.load(SeqCst) {
        return plain(StatusCode::OK, "text/event-stream", &format!("event: message\ndata: {message}\n\n"));
    }
    plain(StatusCode::OK, JSON, &message)
}

/// A page of the tools; the cursor is where the next one begins.
fn listed(shared: &Shared, params: &Value) -> Value {
    let tools = lock(&shared.tools);
    let start: usize = params["cursor"].as_str().and_then(|cursor| cursor.parse().ok()).unwrap_or(0);
    let page: Vec<&Value> = tools.values().skip(start).take(shared.page_size).collect();
    let next = start + page.len();
    let mut result = json!({ "tools": page });
    if next < tools.len() {
        result["nextCursor"] = json!(next.to_string());
    }
    result
}

fn changes(shared: &Shared) -> Response<FakeBody> {
    let notification = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
    let data = Bytes::from(format!("event: message\ndata: {notification}\n\n"));
    let changes = futures::stream::unfold(shared.changed.subscribe(), move |mut changed| {
        let data = data.clone();
        async move { changed.recv().await.ok().map(|()| (Ok(Frame::data(data)), changed)) }
    });
    let mut response = Response::new(BodyExt::boxed_unsync(StreamBody::new(changes.boxed())));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    response
}

/// An answer by events that has begun, and breaks before it says anything.
fn broken_events() -> Response<FakeBody> {
    let begun = futures::stream::iter([Ok(Frame::data(Bytes::from_static(b": one moment\n\n")))]);
    let broken = futures::stream::once(async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        Err(HangUp)
    });
    let mut response = Response::new(BodyExt::boxed_unsync(StreamBody::new(begun.chain(broken).boxed())));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    response
}

async fn called(shared: &Shared, message: &Value, key: Option<String>) -> Result<Response<FakeBody>, HangUp> {
    let params = &message["params"];
    let name = params["name"].as_str().unwrap_or_default().to_owned();
    if !lock(&shared.tools).contains_key(&name) {
        let error = json!({"code": -32602, "message": format!("Unknown tool: {name}")});
        let error = json!({"jsonrpc": "2.0", "id": message["id"], "error": error});
        return Ok(plain(StatusCode::OK, JSON, &error.to_string()));
    }
    let orders = &params["arguments"];
    let executed = shared.ledger.write(json!({
        "event": "executed", "tool": name, "arguments": orders, "idempotencyKey": key, "meta": params["_meta"],
        "request": message["id"],
    }));
    tokio::time::sleep(Duration::from_millis(orders["delayMs"].as_u64().unwrap_or(0))).await;
    if orders["hangUp"] == true {
        return if shared.by_events.load(SeqCst) { Ok(broken_events()) } else { Err(HangUp) };
    }
    let said = match (&orders["fail"], &orders["say"]) {
        (Value::String(why), _) => why.clone(),
        (_, Value::String(text)) => text.clone(),
        _ => format!("{name} done ({executed})"),
    };
    let mut content = vec![json!({"type": "text", "text": said})];
    if orders["image"] == true {
        content.push(json!({"type": "image", "mimeType": "image/png", "data": "AAAA"}));
    }
    shared.ledger.write(json!({"event": "returned", "executed": executed}));
    Ok(answered(shared, &message["id"], &json!({"content": content, "isError": orders["fail"].is_string()})))
}
