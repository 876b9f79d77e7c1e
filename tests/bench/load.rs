//! Clients that wait for each answer before they ask again, as light as they can be: one connection each, bodies made
//! before the clock starts.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use crate::stand::{Server, Session, Stand, text};

pub struct Connection {
    url: String,
    sender: SendRequest<Full<Bytes>>,
    /// The last answer said that its connection ends with it.
    over: bool,
}

impl Connection {
    pub async fn open(url: &str) -> Result<Self> {
        let stream = TcpStream::connect(url.trim_start_matches("http://")).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(Self { url: url.to_owned(), sender, over: false })
    }

    pub async fn send(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Result<(u16, Bytes)> {
        let (status, _, body) = self.exchange(method, path, headers, body).await?;
        Ok((status, body))
    }

    /// Also the moment at which the first text of the answer came.
    async fn exchange(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Result<(u16, Instant, Bytes)> {
        if self.over {
            *self = Self::open(&self.url.clone()).await?;
        }
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "bench")
            .header("content-type", "application/json");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.sender.ready().await?;
        let response = self.sender.send_request(request.body(Full::new(body))?).await?;
        let status = response.status().as_u16();
        self.over = response.headers().get("connection").is_some_and(|value| value == "close");
        let mut body = response.into_body();
        let (mut whole, mut first) = (Vec::new(), None);
        while let Some(frame) = body.frame().await {
            if let Ok(data) = frame?.into_data() {
                whole.extend_from_slice(&data);
                if first.is_none() && contains(&whole, b"word") {
                    first = Some(Instant::now());
                }
            }
        }
        Ok((status, first.unwrap_or_else(Instant::now), whole.into()))
    }

    pub async fn call(&mut self, session: &Session, call: &str, stream: bool) -> Result<(u16, Bytes)> {
        self.send("POST", &format!("{}/calls", session.path()), &[], body(call, stream)).await
    }
}

fn body(call: &str, stream: bool) -> Bytes {
    let stream = if stream { ",\"stream\":true" } else { "" };
    format!("{{\"input\":\"{}\",\"callId\":\"{call}\"{stream}}}", text()).into()
}

fn contains(text: &[u8], wanted: &[u8]) -> bool {
    text.windows(wanted.len()).any(|window| window == wanted)
}

/// How many clients, in which sessions.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    pub clients: usize,
    /// Messages in a session's history when its turns begin.
    pub history: usize,
    pub sessions_each: usize,
    /// Turns in a session: few, or its history would grow past what it stands for.
    pub turns_each: usize,
    pub stream: bool,
    /// One turn of every session before the clock starts.
    pub warm: bool,
}

impl Shape {
    pub fn turns(&self) -> usize {
        self.clients * self.sessions_each * self.turns_each
    }
}

/// What one round has cost, a turn.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sample {
    pub cpu_us: f64,
    pub per_second: f64,
    pub latency_us: f64,
    pub first_us: f64,
    pub bytes: f64,
    pub scripts: f64,
    pub commands: f64,
}

static NEXT: AtomicUsize = AtomicUsize::new(0);

pub fn fresh_sessions(count: usize) -> Vec<Session> {
    let first = NEXT.fetch_add(count, Relaxed);
    (first..first + count)
        .map(|n| Session { user: format!("u{}", n % 97), session: format!("s{n}") })
        .collect()
}

pub async fn round(stand: &Stand, server: &Server, shape: Shape) -> Result<Sample> {
    let sessions = fresh_sessions(shape.clients * shape.sessions_each);
    // A warm-up turn leaves two messages of its own.
    stand.seed(server, &sessions, shape.history.saturating_sub(if shape.warm { 2 } else { 0 })).await?;
    if shape.warm {
        let warm = Shape { turns_each: 1, ..shape };
        drive(server, &sessions, warm, "w").await?;
    }
    let (cpu, counts, started) = (server.cpu()?, stand.store_counts()?, Instant::now());
    let (mut latencies, mut firsts) = drive(server, &sessions, shape, "c").await?;
    let wall = started.elapsed();
    let (cpu, after) = (server.cpu()?.saturating_sub(cpu), stand.store_counts()?);
    let each = |total: u64| total as f64 / shape.turns() as f64;
    Ok(Sample {
        cpu_us: cpu.as_secs_f64() * 1e6 / shape.turns() as f64,
        per_second: shape.turns() as f64 / wall.as_secs_f64(),
        latency_us: median_of(&mut latencies),
        first_us: median_of(&mut firsts),
        bytes: each(after.bytes - counts.bytes),
        scripts: each(after.scripts - counts.scripts),
        commands: each(after.commands - counts.commands),
    })
}

/// Every client through its sessions; how long each turn took, and to its first text.
async fn drive(
    server: &Server,
    sessions: &[Session],
    shape: Shape,
    calls: &'static str,
) -> Result<(Vec<Duration>, Vec<Duration>)> {
    let done = Arc::new(AtomicUsize::new(0));
    let mut clients = tokio::task::JoinSet::new();
    for own in sessions.chunks(shape.sessions_each) {
        let paths: Vec<String> = own.iter().map(|session| format!("{}/calls", session.path())).collect();
        let (url, done) = (server.url.clone(), Arc::clone(&done));
        let mut connection = Connection::open(&url).await?;
        clients.spawn(async move {
            let mut took = Vec::with_capacity(shape.turns_each * paths.len());
            for path in &paths {
                for turn in 0..shape.turns_each {
                    let body = body(&format!("{calls}{turn}"), shape.stream);
                    let asked = Instant::now();
                    let (status, first, answer) = connection.exchange("POST", path, &[], body).await?;
                    took.push((asked.elapsed(), first - asked));
                    ensure!(
                        status == 200 && contains(&answer, b"completed"),
                        "a call failed: {status} {}",
                        String::from_utf8_lossy(&answer)
                    );
                    done.fetch_add(1, Relaxed);
                }
            }
            Ok(took)
        });
    }
    let mut all = Vec::new();
    while let Some(took) = clients.join_next().await {
        all.extend(took.context("a client")??);
    }
    ensure!(done.load(Relaxed) == shape.turns(), "not every turn was made");
    Ok(all.into_iter().unzip())
}

fn median_of(times: &mut [Duration]) -> f64 {
    times.sort_unstable();
    times.get(times.len() / 2).map_or(0.0, |time| time.as_secs_f64() * 1e6)
}
