//! The store is checked before it is trusted: against a real redis-server.

use std::{path::PathBuf, time::Duration};

use anyhow::{Result, bail, ensure};
use holdfast_tests::apiserver::{Process, free_ports, program};
use k8s_openapi::api::apps::v1::Deployment;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::bench::{Bench, SOON, eventually};

struct Redis {
    port: u16,
    // Before its folder.
    _process: Process,
    _folder: TempDir,
}

impl Redis {
    async fn start(settings: &[&str]) -> Result<Self> {
        let [port] = free_ports()?;
        let folder = tempfile::tempdir()?;
        let mut args =
            vec!["--port".to_owned(), port.to_string(), "--dir".into(), folder.path().display().to_string()];
        args.extend(settings.iter().map(|setting| (*setting).to_owned()));
        let log: PathBuf = folder.path().join("redis.log");
        let process = Process::start(&program("HOLDFAST_REDIS_SERVER", "redis-server")?, &args, &[], log)?;
        let redis = Self { port, _process: process, _folder: folder };
        eventually("a redis-server", SOON, async || redis.say("PING").await.map(drop)).await?;
        Ok(redis)
    }

    /// One inline command, one answer.
    async fn say(&self, command: &str) -> Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).await?;
        stream.write_all(format!("{command}\r\n").as_bytes()).await?;
        let mut answer = [0; 256];
        let read = tokio::time::timeout(Duration::from_secs(2), stream.read(&mut answer)).await??;
        let answer = String::from_utf8_lossy(&answer[..read]).into_owned();
        if read == 0 { bail!("no answer to {command}") } else { Ok(answer) }
    }

    fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }
}

fn with(redis: &Value) -> Value {
    json!({"replicas": 2, "model": {"provider": "Scripted"}, "stateStore": {"type": "Redis", "redis": redis}})
}

/// What each setting would lose, and the setting to change; none of it blocks.
pub async fn what_a_store_would_lose_is_said(bench: &Bench) -> Result<()> {
    let space = bench.namespace("durability").await?;
    let redis = Redis::start(&["--appendonly", "yes", "--appendfsync", "always"]).await?;
    let cases = [
        ("always", "CONFIG SET appendfsync always", "True", "Always", ""),
        ("everysec", "CONFIG SET appendfsync everysec", "False", "EverySecond", "appendfsync always"),
        (
            "evicting",
            "CONFIG SET maxmemory-policy allkeys-lru",
            "False",
            "Evicting",
            "maxmemory-policy noeviction",
        ),
        ("again", "CONFIG SET maxmemory-policy noeviction", "False", "EverySecond", ""),
        ("memory", "CONFIG SET appendonly no", "False", "MemoryOnly", "appendonly yes"),
    ];
    for (agent, command, status, reason, remedy) in cases {
        ensure!(redis.say(command).await?.starts_with("+OK"), "{command}");
        space.apply(agent, with(&json!({"url": redis.url()}))).await?;
        let said = space.says(agent, "StateStoreDurable", status, reason, SOON).await?;
        ensure!(said.message.contains(remedy), "{}", said.message);
        space.says(agent, "StateStoreReady", "True", "Connected", SOON).await?;
        space.deployment(agent).await?;
    }
    Ok(())
}

/// One that refuses us blocks what is new and leaves what runs; a corrected Secret heals it at once.
pub async fn a_store_that_refuses_us_blocks_only_what_is_new(bench: &Bench) -> Result<()> {
    let space = bench.namespace("refused").await?;
    let redis = Redis::start(&["--requirepass", "right", "--appendonly", "yes"]).await?;
    let wrong = format!("redis://:wrong@127.0.0.1:{}", redis.port);
    let right = format!("redis://:right@127.0.0.1:{}", redis.port);
    space.secret("redis", "url", &wrong).await?;
    let spec = with(&json!({"urlSecretRef": {"name": "redis", "key": "url"}}));
    space.apply("a", spec.clone()).await?;
    let said = space.says("a", "StateStoreReady", "False", "AuthenticationFailed", SOON).await?;
    ensure!(!said.message.contains("wrong") && !said.message.contains("127.0.0.1"), "{}", said.message);
    space.says("a", "Ready", "False", "StateStoreNotReady", SOON).await?;
    ensure!(space.api::<Deployment>().get_opt("a").await?.is_none(), "it was started all the same");

    space.secret("redis", "url", &right).await?;
    space.says("a", "StateStoreReady", "True", "Connected", SOON).await?;
    let running = space.deployment("a").await?;

    space.secret("redis", "url", &wrong).await?;
    space.says("a", "StateStoreReady", "False", "AuthenticationFailed", SOON).await?;
    let after = space.api::<Deployment>().get("a").await?;
    ensure!(after.spec == running.spec, "what runs was rolled to a password that is refused");
    Ok(())
}

pub async fn a_store_that_cannot_be_reached_from_here_blocks_nothing(bench: &Bench) -> Result<()> {
    let space = bench.namespace("unreachable").await?;
    let [nobody] = free_ports()?;
    space.apply("a", with(&json!({"url": format!("redis://127.0.0.1:{nobody}")}))).await?;
    let said = space.says("a", "StateStoreReady", "Unknown", "Unreachable", SOON).await?;
    ensure!(
        !said.message.contains("refused") && !said.message.contains(&nobody.to_string()),
        "{}",
        said.message
    );
    space.says("a", "StateStoreDurable", "Unknown", "Unknown", SOON).await?;
    space.deployment("a").await.map(drop)
}
