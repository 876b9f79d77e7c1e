//! A model that costs next to nothing: it reads no further than it must and answers at once, on a thread of its own.
//!
//! What it does stands in the path before `/v1`: `plain`, `slow/<ms>` (thinks first), `stream/<tokens>/<µs between two>`,
//! `tool` (asks for one tool, then answers). `/…/tools` is a tool server without a protocol, for the floor.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Context, Result};
use bytes::Bytes;
use futures::{StreamExt, stream};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::net::TcpListener;

/// As long as what the clients say: a conversation of 1 000 messages has about 430 kB.
pub const TEXT_BYTES: usize = 400;

type Answer = UnsyncBoxBody<Bytes, Infallible>;

#[derive(Clone)]
struct Answers {
    text: Bytes,
    tool: Bytes,
    result: Bytes,
    opening: Bytes,
    token: Bytes,
    closing: Bytes,
    asked: Arc<AtomicUsize>,
}

pub struct Model {
    address: SocketAddr,
    asked: Arc<AtomicUsize>,
}

impl Model {
    pub fn start() -> Result<Self> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let asked = Arc::new(AtomicUsize::new(0));
        let answers = Answers::new(Arc::clone(&asked));
        let thread = std::thread::Builder::new().name("model".into());
        thread.spawn(move || runtime.block_on(serve(listener, answers))).context("the model's thread")?;
        Ok(Self { address, asked })
    }

    /// The base URL of a model that behaves so.
    pub fn url(&self, behaviour: &str) -> String {
        format!("http://{}/{behaviour}/v1", self.address)
    }

    /// How often it has been asked.
    pub fn asked(&self) -> usize {
        self.asked.load(Relaxed)
    }
}

async fn serve(listener: std::net::TcpListener, answers: Answers) {
    let listener = TcpListener::from_std(listener).expect("a listening socket");
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let _ = stream.set_nodelay(true);
        let answers = answers.clone();
        tokio::spawn(async move {
            let service = hyper::service::service_fn(move |request| answer(request, answers.clone()));
            let http = hyper::server::conn::http1::Builder::new();
            let _ = http.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn answer(request: Request<Incoming>, answers: Answers) -> Result<Response<Answer>, hyper::Error> {
    let (head, mut body) = request.into_parts();
    let mut last = Bytes::new();
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame?.into_data() {
            last = data;
        }
    }
    let mut words = head.uri.path().split('/').skip(1);
    let behaviour = words.next().unwrap_or_default();
    let mut number = || words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
    if head.uri.path().ends_with("/tools") {
        return Ok(whole(&answers.result));
    }
    answers.asked.fetch_add(1, Relaxed);
    Ok(match behaviour {
        "slow" => {
            tokio::time::sleep(Duration::from_millis(number())).await;
            whole(&answers.text)
        }
        "stream" => {
            let tokens = usize::try_from(number()).unwrap_or(0);
            streamed(&answers, tokens, Duration::from_micros(number()))
        }
        "tool" if !answers_a_tool(&last) => whole(&answers.tool),
        _ => whole(&answers.text),
    })
}

/// Whether the last message of the transcript is a tool's result.
fn answers_a_tool(end: &[u8]) -> bool {
    const ROLE: &[u8] = b"\"role\":\"";
    let at = end.windows(ROLE.len()).rposition(|window| window == ROLE);
    at.is_some_and(|at| end[at + ROLE.len()..].starts_with(b"tool\""))
}

fn whole(body: &Bytes) -> Response<Answer> {
    let mut response = Response::new(Full::new(body.clone()).boxed_unsync());
    response.headers_mut().insert("content-type", http::HeaderValue::from_static("application/json"));
    response
}

fn streamed(answers: &Answers, tokens: usize, gap: Duration) -> Response<Answer> {
    let pieces = std::iter::once(answers.opening.clone())
        .chain(std::iter::repeat_n(answers.token.clone(), tokens))
        .chain([answers.closing.clone()]);
    let frames = stream::iter(pieces).then(move |piece| async move {
        if !gap.is_zero() {
            tokio::time::sleep(gap).await;
        }
        Ok::<_, Infallible>(Frame::data(piece))
    });
    let mut response = Response::new(BodyExt::boxed_unsync(StreamBody::new(frames)));
    response.headers_mut().insert("content-type", http::HeaderValue::from_static("text/event-stream"));
    response
}

impl Answers {
    fn new(asked: Arc<AtomicUsize>) -> Self {
        let usage = json!({"prompt_tokens": 12, "completion_tokens": 100, "total_tokens": 112});
        let said = |message: serde_json::Value, reason: &str| {
            let choices = json!([{"index": 0, "message": message, "finish_reason": reason}]);
            Bytes::from(json!({"id": "x", "object": "chat.completion", "created": 1, "model": "fake", "choices": choices, "usage": usage}).to_string())
        };
        let event = |delta: serde_json::Value, reason: Option<&str>| {
            let choices = json!([{"index": 0, "delta": delta, "finish_reason": reason}]);
            format!(
                "data: {}\n\n",
                json!({"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "fake", "choices": choices})
            )
        };
        let call =
            json!({"id": "call_1", "type": "function", "function": {"name": "lookup", "arguments": "{}"}});
        let end = json!({"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "fake", "choices": [], "usage": usage});
        Self {
            text: said(json!({"role": "assistant", "content": "a".repeat(TEXT_BYTES)}), "stop"),
            tool: said(json!({"role": "assistant", "content": null, "tool_calls": [call]}), "tool_calls"),
            result: json!({"jsonrpc": "2.0", "id": 1, "result": {"content": [{"type": "text", "text": "found"}], "isError": false}})
                .to_string()
                .into(),
            opening: event(json!({"role": "assistant", "content": ""}), None).into(),
            token: event(json!({"content": "word "}), None).into(),
            closing: format!("{}data: {end}\n\ndata: [DONE]\n\n", event(json!({}), Some("stop"))).into(),
            asked,
        }
    }
}
