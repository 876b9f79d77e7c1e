//! What a measurement stands on: one Redis, one model, and the two programs as processes whose costs the kernel counts.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use holdfast_tests::redis::{Options, RedisServer};
use holdfast_tests::replica::{self, Replica, free_port};
use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;
use serde_json::json;
use tempfile::TempDir;

use crate::model::{Model, TEXT_BYTES};

/// Also under a profiler, on a busy machine.
const READY: Duration = Duration::from_secs(90);

pub struct Stand {
    pub redis: RedisServer,
    pub model: Model,
    folder: TempDir,
    started: std::cell::Cell<usize>,
}

/// What differs between two sidecars.
#[derive(Clone)]
pub struct Setup {
    /// What the model does; see `model.rs`.
    pub model: String,
    pub cache: &'static str,
    pub tools: Option<String>,
    pub drain: &'static str,
}

impl Default for Setup {
    fn default() -> Self {
        Self { model: "plain".into(), cache: "64Mi", tools: None, drain: "30s" }
    }
}

impl Setup {
    pub fn model(model: &str) -> Self {
        Self { model: model.to_owned(), ..Self::default() }
    }
}

impl Stand {
    pub fn new() -> Result<Self> {
        // Nothing on disk: what is measured is our work, not the disk's.
        let redis = Options::default().volatile().start()?;
        let folder = tempfile::Builder::new().prefix("holdfast-bench-").tempdir()?;
        Ok(Self { redis, model: Model::start()?, folder, started: 0.into() })
    }

    pub fn floor(&self, model: &str, cache: bool) -> Result<Server> {
        self.floor_by(Command::new(floor_program()?), model, cache)
    }

    /// By a command that ends with the program.
    pub fn floor_by(&self, mut command: Command, model: &str, cache: bool) -> Result<Server> {
        let port = free_port()?;
        command.arg(port.to_string()).arg(self.redis.url()).arg(self.model.url(model));
        if cache {
            command.arg("--cache");
        }
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn()?;
        let (url, pid) = (format!("http://127.0.0.1:{port}"), child.id());
        Ok(Server { url, admin: None, pid, streams: streams(model), process: Process::Floor(child) })
    }

    pub fn sidecar(&self, setup: &Setup) -> Result<Server> {
        self.sidecar_by(Command::new(replica::program()?), setup)
    }

    /// By a command that ends with the program.
    pub fn sidecar_by(&self, command: Command, setup: &Setup) -> Result<Server> {
        let n = self.started.replace(self.started.get() + 1);
        let manifest = self.folder.path().join(format!("agent-{n}.yaml"));
        fs::write(&manifest, self.manifest(setup).to_string())?;
        let replica = Replica::spawn_by(command, self.folder.path(), &format!("bench-{n}"), &manifest, &[])?;
        let (url, pid) = (replica.url.clone(), replica.pid());
        let (admin, streams) = (Some(replica.admin.clone()), streams(&setup.model));
        Ok(Server { url, admin, pid, streams, process: Process::Sidecar(replica) })
    }

    fn manifest(&self, setup: &Setup) -> serde_json::Value {
        let tools: Vec<_> = setup
            .tools
            .iter()
            .map(|url| json!({"name": "crm", "mcp": {"url": url}, "safety": {"lookup": "ReadOnly"}}))
            .collect();
        json!({
            "apiVersion": "holdfast.dev/v1alpha1", "kind": "Agent", "metadata": {"name": "bench"},
            "spec": {
                "systemPrompt": "You are brief.",
                "model": {"provider": "OpenAI", "name": "fake", "baseUrl": self.model.url(&setup.model), "contextWindow": 1_000_000},
                "tools": tools,
                "stateStore": {"type": "Redis", "redis": {"url": self.redis.url()}, "cacheSize": setup.cache},
                "session": {"maxRunningCalls": 10_000},
                "shutdown": {"drainTimeout": setup.drain},
            },
        })
    }

    /// Sessions with so many messages, as the program itself would have left them.
    pub async fn seed(&self, server: &Server, sessions: &[Session], messages: usize) -> Result<()> {
        if messages == 0 {
            return Ok(());
        }
        match &server.process {
            Process::Floor(_) => {
                let mut redis = self.connection().await?;
                let said: Vec<String> =
                    (0..messages).map(|n| json!({"role": role(n), "content": text()}).to_string()).collect();
                for session in sessions {
                    let key = format!("floor:{{{}.{}}}:ctx", session.user, session.session);
                    redis::cmd("RPUSH").arg(key).arg(&said).query_async::<()>(&mut redis).await?;
                }
            }
            Process::Sidecar(_) => {
                let context: Vec<_> = (0..messages)
                    .map(|n| json!({"role": role(n), "content": [{"type": "text", "text": text()}]}))
                    .collect();
                let mut connection = crate::load::Connection::open(&server.url).await?;
                for session in sessions {
                    let state = json!({"schemaVersion": 1, "userId": session.user, "sessionId": session.session, "version": 0, "context": context});
                    let path = format!("{}/state", session.path());
                    let (status, said) = connection
                        .send("PUT", &path, &[("if-none-match", "*")], state.to_string().into())
                        .await?;
                    ensure!(
                        status == 200,
                        "the state was not taken: {status} {}",
                        String::from_utf8_lossy(&said)
                    );
                }
            }
        }
        Ok(())
    }

    async fn connection(&self) -> Result<MultiplexedConnection> {
        // Filling it may keep it busy for longer than a client waits by itself.
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(READY))
            .set_response_timeout(Some(READY));
        let client = redis::Client::open(self.redis.url())?;
        Ok(client.get_multiplexed_async_connection_with_config(&config).await?)
    }

    /// Bytes sent to the store so far, scripts called, and commands run by them or by themselves.
    pub fn store_counts(&self) -> Result<StoreCounts> {
        let stats = self.redis.command(&["INFO", "commandstats"])?;
        let calls = |line: &str| line.split("calls=").nth(1)?.split(',').next()?.parse::<u64>().ok();
        let commands = stats.lines().filter(|line| !line.starts_with("cmdstat_info"));
        let (mut counts, mut scripts) = (0, 0);
        for line in commands {
            let n = calls(line).unwrap_or(0);
            counts += n;
            scripts += if line.starts_with("cmdstat_eval") { n } else { 0 };
        }
        Ok(StoreCounts { bytes: self.redis.info("total_net_input_bytes")?, scripts, commands: counts })
    }
}

#[derive(Debug, Clone, Copy)]
pub struct StoreCounts {
    pub bytes: u64,
    pub scripts: u64,
    pub commands: u64,
}

fn streams(model: &str) -> bool {
    model.starts_with("stream/")
}

pub fn text() -> String {
    "q".repeat(TEXT_BYTES)
}

fn role(n: usize) -> &'static str {
    if n.is_multiple_of(2) { "user" } else { "assistant" }
}

#[derive(Debug, Clone)]
pub struct Session {
    pub user: String,
    pub session: String,
}

impl Session {
    pub fn path(&self) -> String {
        format!("/v1/users/{}/sessions/{}", self.user, self.session)
    }
}

/// The floor, built beside this program.
pub fn floor_program() -> Result<PathBuf> {
    let program = std::env::current_exe()?.with_file_name("holdfast-floor");
    ensure!(program.exists(), "{} is not built; run `make bench`", program.display());
    Ok(program)
}

enum Process {
    Floor(Child),
    Sidecar(Replica),
}

pub struct Server {
    pub url: String,
    pub admin: Option<String>,
    pub pid: u32,
    /// Its model answers in events only.
    streams: bool,
    process: Process,
}

impl Server {
    /// Waits until it answers a call.
    pub async fn ready(&self) -> Result<()> {
        let started = Instant::now();
        let warm = Session { user: "nobody".into(), session: format!("ready-{}", self.pid) };
        loop {
            if let Ok(mut connection) = crate::load::Connection::open(&self.url).await
                && let Ok((200, _)) = connection.call(&warm, "ready", self.streams).await
            {
                return Ok(());
            }
            if started.elapsed() > READY {
                bail!("{} does not answer", self.url);
            }
            tokio::time::sleep(Duration::from_micros(200)).await;
        }
    }

    /// Waits until it says that it is ready; no call is made.
    pub async fn ready_without_a_call(&self) -> Result<()> {
        let admin = self.admin.as_deref().context("only a sidecar says so")?;
        let started = Instant::now();
        while started.elapsed() < READY {
            if let Ok(mut connection) = crate::load::Connection::open(admin).await
                && let Ok((200, _)) = connection.send("GET", "/readyz", &[], bytes::Bytes::new()).await
            {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        bail!("{admin} is not ready")
    }

    /// Processor time of all its threads.
    pub fn cpu(&self) -> Result<Duration> {
        let mut total = 0;
        for task in fs::read_dir(format!("/proc/{}/task", self.pid))? {
            let Ok(stat) = fs::read_to_string(task?.path().join("schedstat")) else { continue };
            total += stat.split_whitespace().next().and_then(|ns| ns.parse::<u64>().ok()).unwrap_or(0);
        }
        Ok(Duration::from_nanos(total))
    }

    /// Resident bytes.
    pub fn memory(&self) -> Result<u64> {
        self.status("VmRSS:").map(|kilobytes| kilobytes * 1024)
    }

    pub fn threads(&self) -> Result<u64> {
        self.status("Threads:")
    }

    pub fn descriptors(&self) -> Result<u64> {
        Ok(fs::read_dir(format!("/proc/{}/fd", self.pid))?.count() as u64)
    }

    fn status(&self, field: &str) -> Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid))?;
        let line = status.lines().find_map(|line| line.strip_prefix(field)).context("no such field")?;
        line.split_whitespace().next().context("no figure")?.parse().context("no figure")
    }

    pub fn terminate(&self) -> Result<()> {
        ensure!(
            Command::new("kill").args(["-TERM", &self.pid.to_string()]).status()?.success(),
            "it is gone"
        );
        Ok(())
    }

    /// Asks it to stop, and waits until it has.
    pub async fn stop(mut self) -> Result<()> {
        self.terminate()?;
        match &mut self.process {
            Process::Floor(child) => drop(child.wait()?),
            Process::Sidecar(replica) => drop(replica.ended(Duration::from_secs(60)).await?),
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Process::Floor(child) = &mut self.process {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
