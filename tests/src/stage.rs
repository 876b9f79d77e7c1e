//! A stage of plain processes: Redis, the fakes, the replicas, and the clients that talk to them.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::json;
use tokio::sync::Mutex;

use crate::fake_model::FakeModel;
use crate::fake_tools::FakeTools;
use crate::ledger::Ledger;
use crate::load::{Call, Client, How, Log, Session};
use crate::papers;
use crate::redis::{Options, RedisServer};
use crate::replica::Replica;
use crate::summary::{Summary, UNSAFE_TOOL};

pub const LEASE: Duration = Duration::from_secs(2);
/// Calls of one session in a load.
const LONGEST_SESSION: usize = 16;

pub struct Stage {
    folder: tempfile::TempDir,
    pub redis: Mutex<RedisServer>,
    /// Serve as long as the stage stands.
    _model: FakeModel,
    _tools: FakeTools,
    pub replicas: Mutex<Vec<Replica>>,
    pub client: Client,
    started: AtomicUsize,
    /// What every replica finds in its environment.
    env: Vec<(&'static str, &'static str)>,
    /// Somebody still ends processes: clients go on talking until nobody does.
    pub hurting: AtomicBool,
}

/// What the clients do.
#[derive(Debug, Clone, Copy, Default)]
pub struct Talk {
    /// Clients, each with one session at a time.
    pub clients: usize,
    /// Of each client, at least.
    pub calls: usize,
    /// Some answers take longer than a drain.
    pub slow: bool,
    /// Tools take so many milliseconds.
    pub tools_ms: u64,
    /// Some clients hang up and come back with the same call.
    pub hang_up: bool,
}

impl Stage {
    pub async fn set(name: &str, replicas: usize) -> Result<Self> {
        Self::with(name, replicas, &[]).await
    }

    /// `env` is every replica's.
    pub async fn with(name: &str, replicas: usize, env: &[(&'static str, &'static str)]) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("holdfast-chaos-").tempdir()?;
        let redis = RedisServer::start(Options::default())?;
        let model = FakeModel::witness(
            ([127, 0, 0, 1], 0).into(),
            Ledger::on_disk(&folder.path().join("model.jsonl"))?,
        );
        let tools = FakeTools::witness(
            ([127, 0, 0, 1], 0).into(),
            Ledger::on_disk(&folder.path().join("tools.jsonl"))?,
        );
        let (model, tools) = (model.await?, tools.await?);
        let manifest = manifest(name, &redis.url(), &model.url(), &tools.url());
        std::fs::write(folder.path().join("agent.yaml"), manifest)?;
        let stage = Self {
            folder,
            redis: Mutex::new(redis),
            _model: model,
            _tools: tools,
            replicas: Mutex::default(),
            client: Client::default(),
            started: AtomicUsize::new(0),
            env: env.to_vec(),
            hurting: true.into(),
        };
        for _ in 0..replicas {
            stage.add_replica(&[]).await?;
        }
        Ok(stage)
    }

    /// A new process, ready and open to clients.
    pub async fn add_replica(&self, env: &[(&str, &str)]) -> Result<()> {
        let replica = self.start_replica(env).await?;
        self.client.doors.open(&replica.url);
        self.replicas.lock().await.push(replica);
        Ok(())
    }

    /// A new process, ready, that nobody knows of.
    pub async fn start_replica(&self, env: &[(&str, &str)]) -> Result<Replica> {
        let name = format!("replica-{}", self.started.fetch_add(1, Ordering::Relaxed));
        let env: Vec<_> = self.env.iter().chain(env).copied().collect();
        Replica::start(self.folder.path(), &name, &self.manifest(), &env).await
    }

    fn manifest(&self) -> PathBuf {
        self.folder.path().join("agent.yaml")
    }

    pub async fn talk(&self, talk: &Talk) {
        let clients = (0..talk.clients).map(|n| async move {
            for call in 0.. {
                if call >= talk.calls && !self.hurting.load(Ordering::Relaxed) {
                    break;
                }
                // Users have several sessions, and sessions end: a run may be long, a history need not.
                let session = Session {
                    user: format!("user-{}", n / 2),
                    session: format!("session-{n}-{}", call / LONGEST_SESSION),
                };
                if call % LONGEST_SESSION == 0 {
                    self.hand_in(&session, &log_of(call)).await;
                }
                let how = if (n + call) % 2 == 0 { How::Stream } else { How::Plain };
                let said = line(n, call, talk);
                let call_now = Call { id: format!("call-{n}-{call}"), said, how };
                if talk.hang_up && (n + call) % 7 == 3 {
                    // Gone in the middle, and back with the same call: it must find it, not start it again.
                    let _ =
                        tokio::time::timeout(Duration::from_millis(40), self.peek(&session, &call_now)).await;
                }
                self.client.converse(&session, &call_now).await;
            }
        });
        futures::future::join_all(clients).await;
    }

    /// A log to write in, handed in by whoever of its two writers comes first.
    async fn hand_in(&self, session: &Session, path: &str) {
        for door in 0.. {
            if let Some(door) = self.client.doors.pick(door) {
                let url = format!("{door}{}/files/{path}", session.path());
                let put = self.client.http.put_text(&url, papers::BLANK, &[("if-none-match", "*")]).await;
                if put.is_ok_and(|answer| matches!(answer.status, 201 | 412)) {
                    return;
                }
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// A first try of a call whose client does not stay for the answer.
    async fn peek(&self, session: &Session, call: &Call) {
        let stranger = Client { log: Log::default(), ..self.client.clone() };
        stranger.converse(session, &Call { how: How::Plain, ..call.clone() }).await;
    }

    /// How often the unsafe tool ran, by its own ledger.
    pub fn refunds(&self) -> Result<usize> {
        let records = Ledger::read(&self.folder.path().join("tools.jsonl"))?;
        let refunds =
            records.iter().filter(|record| record["event"] == "executed" && record["tool"] == UNSAFE_TOOL);
        Ok(refunds.count())
    }

    pub async fn judge(&self) -> Result<Summary> {
        let door = self.replicas.lock().await.first().context("no replica is left to ask")?.url.clone();
        let model = Ledger::read(&self.folder.path().join("model.jsonl"))?;
        let tools = Ledger::read(&self.folder.path().join("tools.jsonl"))?;
        Summary::of(&self.client.http, &door, self.client.log.told(), model, tools).await
    }
}

/// A user's sessions of the same time write in one log.
fn log_of(call: usize) -> String {
    format!("log-{}.md", call / LONGEST_SESSION)
}

/// What a client says: plain, slow, in need of tools, or of something to be written; never the same twice.
fn line(client: usize, call: usize, talk: &Talk) -> String {
    let mark = format!("s{client} c{call}");
    let tool = |name: &str| json!({"name": name, "input": {"mark": mark, "delayMs": talk.tools_ms}});
    let paper = || papers::write(&format!("paper-{client}-{}.md", call / LONGEST_SESSION), &mark);
    let orders = match (client + call) % 6 {
        0 => json!({"words": 12, "tokenDelayMs": 20}),
        1 => json!({"tools": [tool("refund")], "delayMs": 50}),
        2 if talk.slow => json!({"words": 30, "tokenDelayMs": 100}),
        2 => json!({"tools": [tool("lookup"), tool("refund")]}),
        3 => json!({"tools": [papers::edit(&log_of(call), &mark)]}),
        4 => json!({"tools": [tool("lookup"), papers::edit(&log_of(call), &mark), paper()]}),
        _ => return mark,
    };
    format!("{mark} #{orders}")
}

fn manifest(name: &str, redis: &str, model: &str, tools: &str) -> String {
    format!(
        "apiVersion: holdfast.dev/v1alpha1
kind: Agent
metadata:
  name: {name}
spec:
  replicas: 3
  model:
    provider: OpenAI
    name: fake
    baseUrl: {model}
  loop:
    callTimeout: 60s
    toolTimeout: 5s
  tools:
    - name: fake
      mcp:
        url: {tools}
      safety:
        lookup: ReadOnly
        put: Idempotent
        refund: Unsafe
  stateStore:
    type: Redis
    redis:
      url: {redis}
  filesystem:
    type: Remote
  session:
    leaseDuration: {}s
  shutdown:
    preStopDelay: 0s
    drainTimeout: 1s
    relayTimeout: 30s
",
        LEASE.as_secs()
    )
}
