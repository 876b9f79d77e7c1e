//! The store is checked before it is trusted: against a real redis-server.

use anyhow::{Context as _, Result, ensure};
use holdfast_tests::{
    apiserver::free_ports,
    redis::{Options, RedisServer},
};
use k8s_openapi::api::apps::v1::Deployment;
use kube::ResourceExt as _;
use serde_json::{Value, json};

use crate::bench::{Bench, SOON, eventually};

/// One command, which must be carried out.
fn say(redis: &RedisServer, words: &[&str]) -> Result<()> {
    let answer = redis.command(words)?;
    ensure!(answer.contains("OK"), "{words:?}: {answer}");
    Ok(())
}

fn with(redis: &Value) -> Value {
    json!({"replicas": 2, "model": {"provider": "Scripted"}, "stateStore": {"type": "Redis", "redis": redis}})
}

/// What each setting would lose, and the setting to change; none of it blocks.
pub async fn what_a_store_would_lose_is_said(bench: &Bench) -> Result<()> {
    let space = bench.namespace("durability").await?;
    let redis = Options::default().with("appendonly", "yes").with("appendfsync", "always").start()?;
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
    for (database, (agent, command, status, reason, remedy)) in cases.into_iter().enumerate() {
        say(&redis, &command.split(' ').collect::<Vec<_>>())?;
        // Another address each time: one that is known is not asked again so soon.
        let url = format!("redis://127.0.0.1:{}/{database}", redis.port());
        space.apply(agent, with(&json!({"url": url}))).await?;
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
    let redis = Options::default().password("right").with("appendonly", "yes").start()?;
    let wrong = format!("redis://:wrong@127.0.0.1:{}", redis.port());
    let right = format!("redis://:right@127.0.0.1:{}", redis.port());
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

/// One that lets us in and says little: it is used, and what is not known is said to be unknown, and why.
pub async fn a_store_that_hides_its_settings_blocks_nothing(bench: &Bench) -> Result<()> {
    let space = bench.namespace("hidden").await?;
    let redis = Options::default().with("appendonly", "yes").with("appendfsync", "always").start()?;
    for (user, denied) in [("no-config", "-config"), ("no-info", "-info")] {
        say(&redis, &["ACL", "SETUSER", user, "on", ">word", "~*", "&*", "+@all", denied])?;
        space.secret(user, "url", &format!("redis://{user}:word@127.0.0.1:{}", redis.port())).await?;
        space.apply(user, with(&json!({"urlSecretRef": {"name": user, "key": "url"}}))).await?;
        space.deployment(user).await?;
    }
    space.says("no-config", "StateStoreReady", "True", "Connected", SOON).await?;
    let said = space.says("no-config", "StateStoreDurable", "Unknown", "Unknown", SOON).await?;
    ensure!(said.message.contains("allow CONFIG GET"), "{}", said.message);
    let said = space.says("no-info", "StateStoreReady", "Unknown", "CheckForbidden", SOON).await?;
    ensure!(said.message.contains("allow it to our user"), "{}", said.message);
    space.says("no-info", "StateStoreDurable", "Unknown", "Unknown", SOON).await.map(drop)
}

/// A replica is told after the store has acknowledged: whoever fails over to it loses the difference.
pub async fn a_store_with_replicas_may_lose_what_it_acknowledged_last(bench: &Bench) -> Result<()> {
    let space = bench.namespace("replicated").await?;
    let redis = Options::default().with("appendonly", "yes").with("appendfsync", "always").start()?;
    let replica = Options::default().start()?;
    say(&replica, &["REPLICAOF", "127.0.0.1", &redis.port().to_string()])?;
    eventually("a replica", SOON, async || {
        ensure!(redis.info("connected_slaves")? == 1);
        Ok(())
    })
    .await?;
    space.apply("a", with(&json!({"url": format!("redis://127.0.0.1:{}", redis.port())}))).await?;
    let said = space.says("a", "StateStoreDurable", "True", "Always", SOON).await?;
    ensure!(said.message.contains("fails over to a replica"), "{}", said.message);
    space.apply("b", with(&json!({"url": format!("redis://127.0.0.1:{}", replica.port())}))).await?;
    let said = space.says("b", "StateStoreReady", "False", "ReadOnly", SOON).await?;
    ensure!(said.message.contains("point the URL at its primary"), "{}", said.message);
    ensure!(space.api::<Deployment>().get_opt("b").await?.is_none(), "it was started all the same");
    Ok(())
}

/// A new password, while the old one still opens: new pods come before old ones go, and nobody says otherwise meanwhile.
pub async fn a_rotated_secret_rolls_the_pods_without_a_gap(bench: &Bench) -> Result<()> {
    let space = bench.namespace("rotated").await?;
    let redis = Options::default().password("old").with("appendonly", "yes").start()?;
    let url = |password: &str| format!("redis://:{password}@127.0.0.1:{}", redis.port());
    space.secret("redis", "url", &url("old")).await?;
    space.apply("a", with(&json!({"urlSecretRef": {"name": "redis", "key": "url"}}))).await?;
    let before = space.deployment("a").await?;
    space.report("a", 2, 2, 2).await?;
    let ready = space.says("a", "Ready", "True", "Ready", SOON).await?;

    say(&redis, &["ACL", "SETUSER", "default", ">new"])?;
    space.secret("redis", "url", &url("new")).await?;
    let after = eventually("other pods", SOON, async || {
        let store = space.condition("a", "StateStoreReady").await?;
        ensure!(store.status == "True", "the store was doubted: {store:?}");
        let after = space.api::<Deployment>().get("a").await?;
        ensure!(after.metadata.generation > before.metadata.generation);
        Ok(after)
    })
    .await?;
    ensure!(after.uid() == before.uid(), "the Deployment was replaced");
    let spec = after.spec.context("a spec")?;
    ensure!(spec.replicas == Some(2));
    let rolling = spec.strategy.and_then(|strategy| strategy.rolling_update).context("a rolling update")?;
    let (unavailable, surge) = (rolling.max_unavailable, rolling.max_surge);
    ensure!(format!("{unavailable:?} {surge:?}") == "Some(Int(0)) Some(Int(1))", "{unavailable:?} {surge:?}");
    space.says("a", "Progressing", "True", "RollingOut", SOON).await?;
    let still = space.condition("a", "Ready").await?;
    ensure!(still.status == "True" && still.last_transition_time == ready.last_transition_time, "{still:?}");
    Ok(())
}
