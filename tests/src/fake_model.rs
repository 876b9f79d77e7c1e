//! A model provider made for tests: Chat Completions and Anthropic Messages over a real socket.
//!
//! What it answers is decided by a function of what it was asked. [`obey`] lets the user's words decide, so that suites
//! which drive the product from outside need no second channel:
//!
//! ```text
//! refund order 7 #{"tools":[{"name":"refund","input":{"order":7}}]}        calls the tool, then says what came back
//! tell me #{"words":40,"tokenDelayMs":20}                                 forty words, slowly
//! again #{"fail":{"status":503,"times":2}}                                fails twice, then answers
//! again #{"cutAfter":3,"times":1}                                         hangs up after three words, once
//! ```
//!
//! The ledger holds, for every request, `asked` (the whole transcript it was sent) before the first byte of an answer,
//! and `answered` (what was said, and whether all of it left) after the last.

mod answer;
mod obey;
mod wire;

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::{Request, Response, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

pub use answer::{Answer, Ask, Ending, Reply};
pub use obey::obey;

use crate::ledger::Ledger;
use crate::serve::{FakeBody, HangUp, plain, serve};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    OpenAi,
    Anthropic,
}

/// One message of the transcript it was sent, the same for both protocols.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Turn {
    pub role: String,
    pub text: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<Called>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_results: Vec<Returned>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Called {
    pub id: String,
    pub name: String,
    pub input: Value,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Returned {
    pub id: String,
    pub text: String,
}

/// One request, as it came.
#[derive(Debug, Clone)]
pub struct Seen {
    pub protocol: Protocol,
    pub path: String,
    pub headers: HashMap<String, String>,
    pub stream: bool,
    pub body: Value,
    pub transcript: Vec<Turn>,
    /// How often this very transcript has been asked before.
    pub repeats: u32,
}

impl Seen {
    pub fn last_user_text(&self) -> &str {
        let said = self.transcript.iter().rfind(|turn| turn.role == "user" && turn.tool_results.is_empty());
        said.map_or("", |turn| turn.text.as_str())
    }

    /// Results of tools that came after the last thing the user said.
    pub fn fresh_results(&self) -> Vec<&Returned> {
        let spoken =
            self.transcript.iter().rposition(|turn| turn.role == "user" && turn.tool_results.is_empty());
        self.transcript[spoken.map_or(0, |at| at + 1)..].iter().flat_map(|turn| &turn.tool_results).collect()
    }
}

type Script = dyn Fn(&Seen) -> Reply + Send + Sync;

struct Shared {
    script: Box<Script>,
    ledger: Ledger,
    seen: Mutex<Vec<Seen>>,
    keep_seen: bool,
    asked_before: Mutex<HashMap<u64, u32>>,
}

/// Serves until it is dropped.
pub struct FakeModel {
    pub address: SocketAddr,
    shared: Arc<Shared>,
    serving: JoinHandle<()>,
}

impl FakeModel {
    /// Answers by `script`, and keeps what it sees in memory.
    pub async fn start(script: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        Self::serve(listener, script, Ledger::in_memory(), true)
    }

    /// Answers by the user's words, and keeps nothing but `ledger`.
    pub async fn witness(listen: SocketAddr, ledger: Ledger) -> anyhow::Result<Self> {
        Self::serve(TcpListener::bind(listen).await?, obey, ledger, false)
    }

    pub fn serve(
        listener: TcpListener,
        script: impl Fn(&Seen) -> Reply + Send + Sync + 'static,
        ledger: Ledger,
        keep_seen: bool,
    ) -> anyhow::Result<Self> {
        let address = listener.local_addr()?;
        let (seen, asked_before) = Default::default();
        let shared = Arc::new(Shared { script: Box::new(script), ledger, seen, keep_seen, asked_before });
        let answering = Arc::clone(&shared);
        let serving = tokio::spawn(serve(listener, move |request| handle(request, Arc::clone(&answering))));
        Ok(Self { address, shared, serving })
    }

    /// The base URL, up to and including the version.
    pub fn url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    pub fn seen(&self) -> Vec<Seen> {
        self.shared.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn ledger(&self) -> &Ledger {
        &self.shared.ledger
    }
}

impl Drop for FakeModel {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn handle(request: Request<Incoming>, shared: Arc<Shared>) -> Result<Response<FakeBody>, HangUp> {
    let (head, body) = request.into_parts();
    let path = head.uri.path().to_owned();
    if path.ends_with("/models") {
        let list = json!({"object": "list", "data": [{"id": "fake", "object": "model"}]});
        return Ok(plain(StatusCode::OK, "application/json", &list.to_string()));
    }
    let protocol = match path.as_str() {
        path if path.ends_with("/chat/completions") => Protocol::OpenAi,
        path if path.ends_with("/messages") => Protocol::Anthropic,
        _ => return Ok(plain(StatusCode::NOT_FOUND, "application/json", "{\"detail\":\"Not Found\"}")),
    };
    let Ok(collected) = body.collect().await else { return Err(HangUp) };
    let bytes: Bytes = collected.to_bytes();
    let Ok(body) = serde_json::from_slice::<Value>(&bytes) else {
        shared.ledger.write(json!({"event": "unreadable", "bytes": bytes.len()}));
        return Ok(plain(
            StatusCode::BAD_REQUEST,
            "application/json",
            "{\"error\":{\"message\":\"not JSON\"}}",
        ));
    };
    let headers = head
        .headers
        .iter()
        .map(|(name, value)| (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned()));
    let transcript = wire::transcript(protocol, &body);
    let mut seen = Seen {
        protocol,
        path,
        headers: headers.collect(),
        stream: body["stream"] == true,
        repeats: 0,
        transcript,
        body,
    };
    seen.repeats = repeats(&shared, &seen);
    let asked = shared.ledger.write(json!({
        "event": "asked", "protocol": protocol, "stream": seen.stream, "repeats": seen.repeats, "transcript": seen.transcript,
    }));
    if shared.keep_seen {
        shared.seen.lock().unwrap_or_else(PoisonError::into_inner).push(seen.clone());
    }
    answer(&seen, asked, &shared).await
}

fn repeats(shared: &Shared, seen: &Seen) -> u32 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    serde_json::to_string(&seen.transcript).unwrap_or_default().hash(&mut hasher);
    let mut asked = shared.asked_before.lock().unwrap_or_else(PoisonError::into_inner);
    let count = asked.entry(hasher.finish()).or_default();
    *count += 1;
    *count - 1
}

async fn answer(seen: &Seen, asked: u64, shared: &Arc<Shared>) -> Result<Response<FakeBody>, HangUp> {
    let reply = (shared.script)(seen);
    let note = |outcome: &str| {
        shared.ledger.write(json!({"event": "answered", "asked": asked, "outcome": outcome}));
    };
    match reply {
        Reply::Say(answer) => {
            tokio::time::sleep(answer.delay).await;
            Ok(wire::say(seen, &answer, asked, shared.ledger.clone()))
        }
        Reply::Refuse { status, headers, body } => {
            note(&format!("refused {status}"));
            let mut response = plain(status, "application/json", &body);
            for (name, value) in headers {
                response.headers_mut().insert(name, value);
            }
            Ok(response)
        }
        Reply::Raw { content_type, body } => {
            note("raw");
            Ok(plain(StatusCode::OK, content_type, &body))
        }
        Reply::HangUp => {
            note("hung up");
            Err(HangUp)
        }
        Reply::Silence => {
            note("silent");
            std::future::pending::<Result<Response<FakeBody>, Infallible>>().await.map_err(|_| HangUp)
        }
    }
}
