//! An API server that errs, is silent or goes away; an operator that dies half-way; two operators.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use http::Method;
use k8s_openapi::api::{apps::v1::Deployment, events::v1::Event};

use holdfast_tests::{
    cluster,
    fake_collector::{FakeCollector, Span},
};

use crate::{
    bench::{Bench, Operator, SOON, eventually, scripted},
    proxy::{Fault, Proxy},
};

/// The lease, one attempt, and what a busy machine adds.
const FAILOVER: Duration = Duration::from_secs(20);

async fn proxied(bench: &Bench, namespace: &str) -> Result<(Proxy, Operator)> {
    let proxy = Proxy::start(bench.server.operator_client().await?).await?;
    let watch = format!("--watch-namespace={namespace}");
    let operator = bench.operator_through(Some(proxy.port), &[&watch, "--reconcile-timeout=1"])?;
    Ok((proxy, operator))
}

/// Errors are told, tried again, and slow nobody else.
pub async fn errors_are_told_and_tried_again(bench: &Bench) -> Result<()> {
    let space = bench.namespace("errors").await?;
    let (proxy, operator) = proxied(bench, "errors").await?;
    proxy.fail(Method::PATCH, "/deployments/broken", Fault::Status(500), usize::MAX);
    proxy.fail(Method::PATCH, "/agents/clumsy/status", Fault::Status(503), 2);
    space.apply("broken", scripted()).await?;
    let said = space.says("broken", "Progressing", "False", "ApplyFailed", SOON).await?;
    ensure!(said.message.contains("Deployment broken"), "{}", said.message);
    for healthy in ["b", "c", "clumsy"] {
        space.apply(healthy, scripted()).await?;
        space.deployment(healthy).await?;
        space.says(healthy, "Progressing", "True", "RollingOut", SOON).await?;
    }
    ensure!(proxy.failed("/agents/clumsy/status") == 2);
    let failures = operator.metric(r#"holdfast_operator_reconcile_failures_total{step="apply"}"#).await?;
    ensure!(failures >= 1.0, "it counts {failures} failures");
    proxy.heal();
    space.deployment("broken").await?;
    space.says("broken", "Progressing", "True", "RollingOut", SOON).await.map(drop)
}

/// What is over at the next attempt leaves no trace in the status, and no Event.
pub async fn a_failure_that_passes_is_not_told(bench: &Bench) -> Result<()> {
    let space = bench.namespace("passing").await?;
    let (proxy, _operator) = proxied(bench, "passing").await?;
    proxy.fail(Method::PATCH, "/services/a", Fault::Status(500), 1);
    space.apply("a", scripted()).await?;
    space.deployment("a").await?;
    space.says("a", "Progressing", "True", "RollingOut", SOON).await?;
    ensure!(proxy.failed("/services/a") == 1);
    let events = space.api::<Event>().list(&Default::default()).await?.items;
    let told = events.iter().find(|event| event.reason.as_deref() == Some("ApplyFailed"));
    ensure!(told.is_none(), "{told:?}");
    Ok(())
}

/// Where it cannot even be found out what is to be done, the status says so too, and what it said before stays.
pub async fn a_lookup_that_fails_is_told(bench: &Bench) -> Result<()> {
    let space = bench.namespace("lookups").await?;
    let (proxy, _operator) = proxied(bench, "lookups").await?;
    space.secret("openai", "k", "x").await?;
    proxy.fail(Method::GET, "/secrets/openai", Fault::Status(500), usize::MAX);
    let spec = serde_json::json!({"model": {"provider": "OpenAI", "name": "m", "apiKeySecretRef": {"name": "openai", "key": "k"}}, "stateStore": {"type": "InMemory"}});
    space.apply("a", spec).await?;
    let said = space.says("a", "Progressing", "False", "LookupFailed", SOON).await?;
    ensure!(said.message.contains("Secret openai"), "{}", said.message);
    space.says("a", "Accepted", "True", "Accepted", SOON).await?;
    space.says("a", "ResolvedRefs", "Unknown", "NotChecked", SOON).await?;
    proxy.heal();
    space.says("a", "Progressing", "True", "RollingOut", SOON).await?;
    space.says("a", "ResolvedRefs", "True", "Resolved", SOON).await?;

    proxy.fail(Method::GET, "/secrets/openai", Fault::Status(500), usize::MAX);
    space.secret("openai", "k", "y").await?;
    space.says("a", "Progressing", "False", "LookupFailed", SOON).await?;
    space.says("a", "ResolvedRefs", "True", "Resolved", SOON).await.map(drop)
}

/// Silence ends by our own clock, whether the request was done or not.
pub async fn silence_is_not_waited_for(bench: &Bench) -> Result<()> {
    let space = bench.namespace("silence").await?;
    let (proxy, _operator) = proxied(bench, "silence").await?;
    proxy.fail(Method::PATCH, "/services/a", Fault::Silence, 1);
    proxy.fail(Method::PATCH, "/deployments/a", Fault::LostAnswer, 1);
    space.apply("a", scripted()).await?;
    space.says("a", "Progressing", "True", "RollingOut", SOON).await?;
    ensure!(proxy.failed("/services/a") == 1 && proxy.failed("/deployments/a") == 1);
    Ok(())
}

/// Watches that break are taken up again, and what happened meanwhile is seen.
pub async fn broken_watches_are_taken_up_again(bench: &Bench) -> Result<()> {
    let space = bench.namespace("watches").await?;
    let (proxy, _operator) = proxied(bench, "watches").await?;
    space.apply("a", scripted()).await?;
    space.deployment("a").await?;
    for round in 0..3 {
        proxy.cut();
        let name = format!("b{round}");
        space.apply(&name, scripted()).await?;
        space.deployment(&name).await?;
    }
    Ok(())
}

/// Killed between two objects, its successor finishes.
pub async fn a_restart_in_the_middle_is_finished_by_the_next(bench: &Bench) -> Result<()> {
    let space = bench.namespace("middle").await?;
    let (proxy, operator) = proxied(bench, "middle").await?;
    proxy.fail(Method::PATCH, "/configmaps/a", Fault::Silence, 1);
    space.apply("a", scripted()).await?;
    eventually("half an Agent", SOON, async || {
        ensure!(proxy.failed("/configmaps/a") == 1);
        Ok(())
    })
    .await?;
    drop(operator);
    ensure!(space.api::<Deployment>().get_opt("a").await?.is_none());
    let _next = bench.operator(&["--watch-namespace=middle"])?;
    space.deployment("a").await?;
    space.says("a", "Accepted", "True", "Accepted", SOON).await.map(drop)
}

/// Two operators, one of which leads; when it dies the other takes over, and when it is told to stop at once.
pub async fn another_leads_when_the_leader_is_gone(bench: &Bench) -> Result<()> {
    let space = bench.namespace("leaders").await?;
    let start = || bench.operator(&["--watch-namespace=leaders", "--lease=holdfast"]);
    let leads = async |operator: &Operator| {
        operator.metric("holdfast_operator_leader").await.is_ok_and(|leads| leads == 1.0)
    };
    let first = start()?;
    eventually("a leader", FAILOVER, async || {
        ensure!(leads(&first).await);
        Ok(())
    })
    .await?;
    let second = start()?;
    eventually("a standby that is ready", SOON, async || {
        ensure!(second.is_ready().await);
        Ok(())
    })
    .await?;
    space.apply("a", scripted()).await?;
    space.deployment("a").await?;
    ensure!(!leads(&second).await, "two lead");

    let killed = Instant::now();
    drop(first);
    space.apply("b", scripted()).await?;
    eventually("another leader", FAILOVER, async || {
        ensure!(leads(&second).await);
        Ok(space.api::<Deployment>().get("b").await?)
    })
    .await?;
    println!("failover after a kill: {:.1} s", killed.elapsed().as_secs_f64());

    let third = start()?;
    eventually("another standby", SOON, async || {
        ensure!(third.is_ready().await);
        Ok(())
    })
    .await?;
    let check = |operators: &[&Operator]| {
        let at: Vec<String> = operators.iter().map(|one| format!("127.0.0.1:{}", one.port)).collect();
        let args: Vec<&str> =
            ["check", "--within=0"].into_iter().chain(at.iter().map(String::as_str)).collect();
        cluster::run(&bench.operator_program.display().to_string(), &args, None)
    };
    check(&[&second, &third])?;
    let alone = check(&[&third]).expect_err("a standby alone was found to be enough");
    ensure!(format!("{alone:#}").contains("0 of 1 operators lead"), "{alone:#}");
    let mut second = second;
    second.process.terminate()?;
    ensure!(second.process.wait()?.success(), "{}", second.log());
    let stopped = Instant::now();
    eventually("a third leader", Duration::from_secs(5), async || {
        ensure!(leads(&third).await);
        Ok(())
    })
    .await?;
    println!("failover after a stop: {:.1} s", stopped.elapsed().as_secs_f64());
    let mut third = third;
    third.process.terminate()?;
    ensure!(third.process.wait()?.success(), "{}", third.log());
    Ok(())
}

/// A leader that cannot renew leaves before anyone else may lead.
pub async fn a_leader_that_cannot_renew_leaves(bench: &Bench) -> Result<()> {
    bench.namespace("renew").await?;
    let proxy = Proxy::start(bench.server.operator_client().await?).await?;
    let mut operator =
        bench.operator_through(Some(proxy.port), &["--watch-namespace=renew", "--lease=holdfast"])?;
    eventually("a leader", SOON, async || {
        ensure!(operator.metric("holdfast_operator_leader").await? == 1.0);
        Ok(())
    })
    .await?;
    proxy.fail(Method::PUT, "/leases/holdfast", Fault::Silence, usize::MAX);
    let since = Instant::now();
    while !operator.process.has_exited() {
        ensure!(since.elapsed() < Duration::from_secs(12), "it leads on without a lease");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    ensure!(operator.process.log().contains("the lease could not be renewed"), "{}", operator.log());
    Ok(())
}

/// With Roles in two namespaces instead of a ClusterRole, and no right anywhere else.
pub async fn two_namespaces_are_enough(bench: &Bench) -> Result<()> {
    let (one, other) = (bench.namespace("narrow-1").await?, bench.namespace("narrow-2").await?);
    let outside = bench.namespace("narrow-3").await?;
    crate::setup::install_rights_of(bench, "narrow", &["watchNamespaces={narrow-1,narrow-2}"]).await?;
    let arguments = ["--watch-namespace=narrow-1,narrow-2", "--lease=narrow"];
    let operator = bench.operator_with(&bench.server.narrow_operator()?, &arguments, &[])?;
    outside.apply("a", scripted()).await?;
    for space in [&one, &other] {
        space.secret("openai", "k", "x").await?;
        let spec = serde_json::json!({"model": {"provider": "OpenAI", "name": "m", "apiKeySecretRef": {"name": "openai", "key": "k"}}, "stateStore": {"type": "InMemory"}});
        space.apply("a", spec).await?;
        space.deployment("a").await?;
        space.report("a", 1, 1, 1).await?;
        space.says("a", "Ready", "True", "Ready", SOON).await?;
    }
    ensure!(outside.api::<Deployment>().get_opt("a").await?.is_none(), "it looked beyond its namespaces");
    ensure!(!operator.process.log().contains("forbidden"), "{}", operator.log());
    Ok(())
}

/// A look and its steps, where somebody collects them; the last ones are sent before the end.
pub async fn what_it_does_can_be_traced(bench: &Bench) -> Result<()> {
    let space = bench.namespace("traced").await?;
    let collector = FakeCollector::start().await?;
    let environment = [("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url())];
    let mut operator = bench.operator_with(
        &bench.server.operator()?,
        &["--watch-namespace=traced", "--log-format=json"],
        &environment,
    )?;
    space.apply("a", scripted()).await?;
    space.deployment("a").await?;
    space.says("a", "Progressing", "True", "RollingOut", SOON).await?;
    operator.process.terminate()?;
    ensure!(operator.process.wait()?.success(), "{}", operator.log());
    let spans = collector.spans();
    let within = |look: &Span, step: &str| {
        spans.iter().any(|span| span.name == step && span.parent == look.id && !span.failed)
    };
    let whole = |look: &&Span| ["dereference", "apply", "status"].iter().all(|step| within(look, step));
    let look = spans.iter().filter(|span| span.name == "reconcile").find(whole);
    let look = look.with_context(|| format!("no look with its steps: {spans:#?}"))?;
    ensure!(look.attributes["k8s.namespace.name"] == "traced" && look.attributes["holdfast.agent"] == "a");
    ensure!(look.resource["service.name"] == "holdfast-operator", "{:?}", look.resource);
    for line in operator.process.log().lines() {
        let line: serde_json::Value =
            serde_json::from_str(line).with_context(|| format!("a line of the log is no JSON: {line}"))?;
        ensure!(
            line["timestamp"].is_string() && line["level"].is_string() && line["message"].is_string(),
            "{line}"
        );
    }
    Ok(())
}
