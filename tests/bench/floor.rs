//! The least a safe turn can cost: a route, one script that takes a fenced lease and returns the history, one call of
//! the model, one script that checks the token, appends the two new messages and lets go.
//!
//! What it leaves out is what the sidecar is measured for: a queue, a journal, replies that can be asked for again,
//! events, takeover, drain. `holdfast-floor PORT REDIS_URL MODEL_URL [--cache]`

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, bail, ensure};
use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use bytes::Bytes;
use futures::{StreamExt, stream};
use http_body_util::{BodyExt, Full};
use hyper::{Request, StatusCode};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, IntoConnectionInfo, Script, Value};
use serde::{Deserialize, Serialize};
use serde_json::json;

const LEASE_MS: u32 = 6_000;
const KEPT_MS: u64 = 2_592_000_000;

const TAKE: &str = "local h = redis.call('HMGET', KEYS[1], 'tok', 'until', 'fence', 'ver')
local now = redis.call('TIME')
now = tonumber(now[1]) * 1000 + math.floor(tonumber(now[2]) / 1000)
if h[1] and h[1] ~= '' and tonumber(h[2]) > now then return false end
local fence = math.max((tonumber(h[3]) or 0) + 1, now)
local token = string.format('%.0f', fence) .. '.' .. ARGV[1]
redis.call('HSET', KEYS[1], 'tok', token, 'until', string.format('%.0f', now + tonumber(ARGV[2])), 'fence', string.format('%.0f', fence))
return { token, h[4] or '0', redis.call('LRANGE', KEYS[2], ARGV[3], -1) }";

const KEEP: &str = "local h = redis.call('HMGET', KEYS[1], 'tok', 'ver')
if h[1] ~= ARGV[1] or (h[2] or '0') ~= ARGV[2] then return 0 end
redis.call('RPUSH', KEYS[2], unpack(ARGV, 5))
if ARGV[4] == '1' then
  redis.call('HSET', KEYS[1], 'tok', '', 'ver', tonumber(ARGV[2]) + 1)
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
  redis.call('PEXPIRE', KEYS[2], ARGV[3])
end
return 1";

struct Floor {
    redis: MultiplexedConnection,
    take: Script,
    keep: Script,
    http: Client<HttpConnector, Full<Bytes>>,
    model: String,
    tools: String,
    cache: Option<Mutex<HashMap<String, Vec<Bytes>>>>,
}

#[derive(Deserialize)]
struct Asked {
    input: String,
    #[serde(default)]
    stream: bool,
}

#[derive(Serialize)]
struct Said<'a> {
    role: &'a str,
    content: &'a str,
}

#[derive(Deserialize)]
struct Reply<'a> {
    #[serde(borrow)]
    choices: Vec<Choice<'a>>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(borrow, alias = "delta")]
    message: Message<'a>,
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    content: Option<std::borrow::Cow<'a, str>>,
    #[serde(borrow)]
    tool_calls: Option<&'a serde_json::value::RawValue>,
}

/// A session under its lease.
struct Held {
    session: String,
    keys: [String; 2],
    token: String,
    version: String,
    history: Vec<Bytes>,
}

impl Floor {
    async fn take(&self, session: String) -> Result<Held> {
        let keys = [format!("floor:{{{session}}}:head"), format!("floor:{{{session}}}:ctx")];
        let cached = self.cache.as_ref().and_then(|cache| lock(cache).remove(&session)).unwrap_or_default();
        let nonce = format!("{:032x}", rand::random::<u128>());
        let mut redis = self.redis.clone();
        let mut call = self.take.prepare_invoke();
        call.key(&keys[0]).key(&keys[1]).arg(nonce).arg(LEASE_MS).arg(cached.len());
        let taken: Option<(String, String, Vec<Value>)> = call.invoke_async(&mut redis).await?;
        let (token, version, rest) = taken.context("another request has this session")?;
        let mut history = cached;
        history.reserve(rest.len() + 2);
        history.extend(rest.into_iter().filter_map(|value| match value {
            Value::BulkString(bytes) => Some(Bytes::from(bytes)),
            _ => None,
        }));
        Ok(Held { session, keys, token, version, history })
    }

    async fn keep(&self, held: &mut Held, messages: Vec<Bytes>, last: bool) -> Result<()> {
        let mut redis = self.redis.clone();
        let mut call = self.keep.prepare_invoke();
        call.key(&held.keys[0])
            .key(&held.keys[1])
            .arg(&held.token)
            .arg(&held.version)
            .arg(KEPT_MS)
            .arg(u8::from(last));
        for message in &messages {
            call.arg(&message[..]);
        }
        let kept: u8 = call.invoke_async(&mut redis).await?;
        ensure!(kept == 1, "the lease was lost");
        held.history.extend(messages);
        if last && let Some(cache) = &self.cache {
            lock(cache).insert(std::mem::take(&mut held.session), std::mem::take(&mut held.history));
        }
        Ok(())
    }

    /// The history is copied as it is stored: nobody parses it.
    fn request(&self, history: &[Bytes], new: &[Bytes], stream: bool) -> Result<Request<Full<Bytes>>> {
        const OPENING: &[u8] =
            b"{\"model\":\"fake\",\"messages\":[{\"role\":\"system\",\"content\":\"You are brief.\"}";
        let all = || history.iter().chain(new);
        let mut body =
            Vec::with_capacity(OPENING.len() + 32 + all().map(|message| message.len() + 1).sum::<usize>());
        body.extend_from_slice(OPENING);
        for message in all() {
            body.push(b',');
            body.extend_from_slice(message);
        }
        body.extend_from_slice(if stream { b"],\"stream\":true}" } else { b"]}" });
        let request = Request::post(format!("{}/chat/completions", self.model));
        Ok(request.header("content-type", "application/json").body(Full::new(body.into()))?)
    }

    async fn turn(&self, session: String, asked: Asked) -> Result<Response> {
        let mut held = self.take(session).await?;
        let question = Bytes::from(serde_json::to_vec(&Said { role: "user", content: &asked.input })?);
        let response = self
            .http
            .request(self.request(&held.history, std::slice::from_ref(&question), asked.stream)?)
            .await?;
        ensure!(response.status() == StatusCode::OK, "the model said {}", response.status());
        let answer = response.into_body().collect().await?.to_bytes();
        let reply: Reply = serde_json::from_slice(&answer)?;
        let message = &reply.choices.first().context("no choice")?.message;
        if let Some(calls) = message.tool_calls {
            let asks = json!({"role": "assistant", "content": null, "tool_calls": calls}).to_string();
            self.keep(&mut held, vec![question, asks.into()], false).await?;
            let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "lookup", "arguments": {}}});
            let request = Request::post(&self.tools).header("content-type", "application/json");
            let result = self.http.request(request.body(Full::new(call.to_string().into()))?).await?;
            let result: serde_json::Value =
                serde_json::from_slice(&result.into_body().collect().await?.to_bytes())?;
            let result = json!({"role": "tool", "tool_call_id": "call_1", "content": result["result"]["content"][0]["text"]});
            self.keep(&mut held, vec![result.to_string().into()], false).await?;
            let answer = self
                .http
                .request(self.request(&held.history, &[], false)?)
                .await?
                .into_body()
                .collect()
                .await?
                .to_bytes();
            let reply: Reply = serde_json::from_slice(&answer)?;
            return self
                .finish(held, None, reply.choices[0].message.content.as_deref().unwrap_or_default())
                .await;
        }
        self.finish(held, Some(question), message.content.as_deref().unwrap_or_default()).await
    }

    async fn finish(&self, mut held: Held, question: Option<Bytes>, text: &str) -> Result<Response> {
        let answer = Bytes::from(serde_json::to_vec(&Said { role: "assistant", content: text })?);
        self.keep(&mut held, question.into_iter().chain([answer]).collect(), true).await?;
        Ok(Json(json!({"status": "completed", "text": text})).into_response())
    }

    /// Passes the model's events on as they come, and keeps what they said when they end.
    async fn streamed(self: Arc<Self>, session: String, asked: Asked) -> Result<Response> {
        let held = self.take(session).await?;
        let question = Bytes::from(serde_json::to_vec(&Said { role: "user", content: &asked.input })?);
        let response =
            self.http.request(self.request(&held.history, std::slice::from_ref(&question), true)?).await?;
        let state = (
            self,
            Some((held, question)),
            response.into_body().into_data_stream(),
            String::new(),
            Vec::new(),
        );
        let events = stream::unfold(state, |(floor, mut held, mut answer, mut text, mut line)| async move {
            match answer.next().await {
                Some(Ok(chunk)) => {
                    for byte in &chunk {
                        if *byte != b'\n' {
                            line.push(*byte);
                        } else if let Some(data) = std::mem::take(&mut line).strip_prefix(b"data: ")
                            && let Ok(reply) = serde_json::from_slice::<Reply>(data)
                            && let Some(content) =
                                reply.choices.first().and_then(|choice| choice.message.content.as_deref())
                        {
                            text.push_str(content);
                        }
                    }
                    Some((Ok::<_, Infallible>(chunk), (floor, held, answer, text, line)))
                }
                _ => {
                    let (held_now, question) = held.take()?;
                    floor.finish(held_now, Some(question), &text).await.ok()?;
                    Some((
                        Ok(Bytes::from_static(b"event: call.completed\ndata: {}\n\n")),
                        (floor, held, answer, text, line),
                    ))
                }
            }
        });
        Ok(([("content-type", "text/event-stream")], Body::from_stream(events)).into_response())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn call(
    State(floor): State<Arc<Floor>>,
    Path((user, session)): Path<(String, String)>,
    Json(asked): Json<Asked>,
) -> Response {
    let slot = format!("{user}.{session}");
    let answered =
        if asked.stream { floor.streamed(slot, asked).await } else { floor.turn(slot, asked).await };
    answered.unwrap_or_else(|error| (StatusCode::INTERNAL_SERVER_ERROR, format!("{error:#}")).into_response())
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [port, redis, model, rest @ ..] = arguments.as_slice() else {
        bail!("usage: holdfast-floor PORT REDIS_URL MODEL_URL [--cache]");
    };
    let info = redis.as_str().into_connection_info()?;
    let info = info.set_tcp_settings(redis::io::tcp::TcpSettings::default().set_nodelay(true));
    // As patient as the sidecar, and more: a busy machine is not what is measured.
    let patience = std::time::Duration::from_secs(10);
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(patience))
        .set_response_timeout(Some(patience))
        .set_pipeline_buffer_size(1024);
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let floor = Floor {
        redis: redis::Client::open(info)?.get_multiplexed_async_connection_with_config(&config).await?,
        take: Script::new(TAKE),
        keep: Script::new(KEEP),
        http: Client::builder(TokioExecutor::new()).build(connector),
        tools: model.replace("/v1", "/tools"),
        model: model.clone(),
        cache: rest.iter().any(|word| word == "--cache").then(Mutex::default),
    };
    let router = Router::new()
        .route("/v1/users/{user}/sessions/{session}/calls", post(call))
        .with_state(Arc::new(floor));
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port.parse::<u16>()?)).await?;
    // As the sidecar does: small answers do not wait for others.
    let listener = axum::serve::ListenerExt::tap_io(listener, |stream| {
        let _ = stream.set_nodelay(true);
    });
    axum::serve(listener, router).await?;
    Ok(())
}
