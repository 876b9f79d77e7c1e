//! A stage: Redis, the fakes, the replicas, and the clients that talk to them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use holdfast_tests::checker::{Evidence, Verdict, judge};
use holdfast_tests::fake_model::FakeModel;
use holdfast_tests::fake_tools::FakeTools;
use holdfast_tests::http::Http;
use holdfast_tests::ledger::Ledger;
use holdfast_tests::load::{Doors, Log, Session, converse};
use holdfast_tests::redis::{Options, RedisServer};
use holdfast_tests::replica::Replica;
use tokio::sync::Mutex;

pub const LEASE: Duration = Duration::from_secs(2);

pub struct Stage {
    folder: tempfile::TempDir,
    pub redis: Mutex<RedisServer>,
    /// Serve as long as the stage stands.
    _model: FakeModel,
    _tools: FakeTools,
    pub replicas: Mutex<Vec<Replica>>,
    pub doors: Doors,
    log: Log,
    http: Http,
    started: AtomicUsize,
    /// Somebody still ends processes: clients go on talking until nobody does.
    pub hurting: AtomicBool,
}

/// What the clients do.
#[derive(Debug, Clone, Copy, Default)]
pub struct Talk {
    pub sessions: usize,
    pub calls: usize,
    /// Some answers take longer than a drain.
    pub slow: bool,
    /// Some clients hang up and come back with the same call.
    pub hang_up: bool,
}

impl Stage {
    pub async fn set(name: &str, replicas: usize) -> Result<Self> {
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
            doors: Doors::default(),
            log: Log::default(),
            http: Http::default(),
            started: AtomicUsize::new(0),
            hurting: true.into(),
        };
        for _ in 0..replicas {
            stage.add_replica(&[]).await?;
        }
        Ok(stage)
    }

    /// A new process, ready and open to clients.
    pub async fn add_replica(&self, env: &[(&str, &str)]) -> Result<()> {
        let name = format!("replica-{}", self.started.fetch_add(1, Ordering::Relaxed));
        let replica = Replica::start(self.folder.path(), &name, &self.manifest(), env).await?;
        self.doors.open(&replica.url);
        self.replicas.lock().await.push(replica);
        Ok(())
    }

    fn manifest(&self) -> PathBuf {
        self.folder.path().join("agent.yaml")
    }

    pub async fn talk(&self, talk: &Talk) {
        let sessions = (0..talk.sessions).map(|n| async move {
            let session = Session { user: format!("user-{}", n / 2), session: format!("session-{n}") };
            for call in 0.. {
                if call >= talk.calls && !self.hurting.load(Ordering::Relaxed) {
                    break;
                }
                let said = line(n, call, talk.slow);
                let id = format!("call-{n}-{call}");
                let stream = (n + call) % 2 == 0;
                let conversation = converse(&self.http, &self.doors, &self.log, &session, &id, &said, stream);
                if talk.hang_up && (n + call) % 7 == 3 {
                    // Gone in the middle, and back with the same call: it must find it, not start it again.
                    let _ = tokio::time::timeout(Duration::from_millis(40), self.peek(&session, &id, &said))
                        .await;
                }
                conversation.await;
            }
        });
        futures::future::join_all(sessions).await;
    }

    /// A first try of a call whose client does not stay for the answer.
    async fn peek(&self, session: &Session, call: &str, said: &str) {
        converse(&self.http, &self.doors, &Log::default(), session, call, said, false).await;
    }

    /// How often the unsafe tool ran, by its own ledger.
    pub fn refunds(&self) -> Result<usize> {
        let records = Ledger::read(&self.folder.path().join("tools.jsonl"))?;
        let refunds =
            records.iter().filter(|record| record["event"] == "executed" && record["tool"] == "refund");
        Ok(refunds.count())
    }

    pub async fn judge(&self) -> Result<Summary> {
        let told = self.log.told();
        let mut states = BTreeMap::new();
        let door = self.replicas.lock().await.first().context("no replica is left to ask")?.url.clone();
        let sessions: BTreeSet<_> =
            told.iter().map(|told| (told.user.clone(), told.session.clone())).collect();
        for who in sessions {
            let session = Session { user: who.0.clone(), session: who.1.clone() };
            let answer = self.http.get(&format!("{door}{}/state", session.path())).await?;
            ensure!(answer.status == 200, "no state of {who:?}: {} {}", answer.status, answer.body);
            states.insert(who, answer.body);
        }
        let unknown = states.values().filter(|state| state.to_string().contains("outcome unknown")).count();
        let evidence = Evidence {
            model: Ledger::read(&self.folder.path().join("model.jsonl"))?,
            tools: Ledger::read(&self.folder.path().join("tools.jsonl"))?,
            unsafe_tools: ["refund".to_owned()].into(),
            states,
            told,
        };
        let told = &evidence.told;
        let mut resumed: Vec<_> = told.iter().filter(|told| told.resumes > 0).map(|told| told.took).collect();
        resumed.sort_unstable();
        Ok(Summary {
            calls: told.len(),
            failures: told.iter().map(|told| told.failures).sum(),
            cuts: told.iter().map(|told| told.cuts).sum(),
            resumed: resumed.len(),
            unknown,
            slowest_resumed: resumed.last().copied().unwrap_or_default(),
            median_resumed: resumed.get(resumed.len() / 2).copied().unwrap_or_default(),
            verdict: judge(&evidence),
        })
    }
}

/// What a client says: plain, slow, or in need of tools; never the same twice.
fn line(session: usize, call: usize, slow: bool) -> String {
    let mark = format!("s{session} c{call}");
    match (session + call) % 4 {
        0 => format!("{mark} #{{\"words\":12,\"tokenDelayMs\":20}}"),
        1 => format!(
            "{mark} #{{\"tools\":[{{\"name\":\"refund\",\"input\":{{\"mark\":\"{mark}\"}}}}],\"delayMs\":50}}"
        ),
        2 if slow => format!("{mark} #{{\"words\":30,\"tokenDelayMs\":100}}"),
        2 => format!(
            "{mark} #{{\"tools\":[{{\"name\":\"lookup\",\"input\":{{\"mark\":\"{mark}\"}}}},{{\"name\":\"refund\",\"input\":{{\"mark\":\"{mark}\"}}}}]}}"
        ),
        _ => mark,
    }
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

#[derive(Debug)]
pub struct Summary {
    pub calls: usize,
    pub failures: u32,
    pub cuts: u32,
    pub resumed: usize,
    /// Sessions in which a tool's outcome is not known.
    pub unknown: usize,
    pub median_resumed: Duration,
    pub slowest_resumed: Duration,
    pub verdict: Verdict,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "  {} calls, {} taken over (whole call: median {:?}, slowest {:?}); seen by clients: {} failed requests, {} cut streams; {} sessions with an unknown outcome",
            self.calls,
            self.resumed,
            self.median_resumed,
            self.slowest_resumed,
            self.failures,
            self.cuts,
            self.unknown
        )?;
        write!(f, "{}", self.verdict)
    }
}
