//! Real replicas, a real Redis, a fake model and fake tools that keep their own ledgers, and somebody who ends processes.
//! The judge reads only what clients were told, the ledgers, and the final states.
//!
//! `HOLDFAST_CHAOS_SEED`, `HOLDFAST_CHAOS_CALLS` and `HOLDFAST_CHAOS_FAULTS` make a run longer, or the same again.

#[path = "chaos/faults.rs"]
mod faults;
#[path = "chaos/lines.rs"]
mod lines;
#[path = "chaos/resume.rs"]
mod resume;

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use holdfast_tests::checker;
use holdfast_tests::papers;
use holdfast_tests::stage::{LEASE, Stage, Talk};
use resume::{AFTER_A_KILL, AFTER_A_STOP, Leaving};

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(default)
}

/// Faults of a run that was not asked to be long.
const FAULTS: u64 = 9;

/// How much longer than usual this run is to be.
fn times_longer() -> usize {
    usize::try_from(number("HOLDFAST_CHAOS_FAULTS", FAULTS) / FAULTS).unwrap_or(1).clamp(1, 20)
}

/// SIGTERM is not a fault: whoever is connected stays connected, and sees one whole answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rolling_restarts_cut_nobody() -> Result<()> {
    let started = Instant::now();
    let stage = Stage::set("rolling", 3).await?;
    let talk = Talk { clients: 12, calls: 4, slow: true, ..Talk::default() };
    let rounds = 2 * times_longer();
    let (faults, ()) = tokio::join!(faults::restart_each_in_turn(&stage, rounds), stage.talk(&talk));
    let faults = faults?;
    let summary = stage.judge().await?;
    let took = started.elapsed().as_secs();
    println!("Rolling restarts: {faults} by SIGTERM in {took} s, three replicas, twelve clients\n{summary}");
    ensure!(summary.verdict.is_clean(), "a promise was broken");
    ensure!(summary.cuts == 0, "{} streams were cut by SIGTERM", summary.cuts);
    ensure!(summary.failures == 0, "{} requests failed by SIGTERM", summary.failures);
    ensure!(
        faults >= 3 * rounds && summary.calls() >= 48 && summary.resumed > 0,
        "too little happened: {faults} restarts, {summary}"
    );
    Ok(())
}

/// The same, with replicas that hang up instead of relaying: a bench that does not see it sees nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_does_not_relay_is_caught() -> Result<()> {
    let stage = Stage::with("no-relay", 2, &[("HOLDFAST_MUTANT", "NoRelay")]).await?;
    let talk = Talk { clients: 6, calls: 2, slow: true, ..Talk::default() };
    let (faults, ()) = tokio::join!(faults::restart_each_in_turn(&stage, 1), stage.talk(&talk));
    let (faults, summary) = (faults?, stage.judge().await?);
    ensure!(
        summary.cuts + summary.failures > 0,
        "{faults} restarts without a relay, and nobody noticed: {summary}"
    );
    ensure!(summary.verdict.is_clean(), "hanging up loses nothing, and yet: {summary}");
    Ok(())
}

/// Everything else is: kill -9, a pause past the lease, Redis killed and restarted, in an order made by a seed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_pauses_and_a_restarted_redis_lose_nothing() -> Result<()> {
    let started = Instant::now();
    let seed = number("HOLDFAST_CHAOS_SEED", 1);
    let (calls, wanted) = (number("HOLDFAST_CHAOS_CALLS", 96), number("HOLDFAST_CHAOS_FAULTS", FAULTS));
    let replay =
        format!("HOLDFAST_CHAOS_SEED={seed} HOLDFAST_CHAOS_CALLS={calls} HOLDFAST_CHAOS_FAULTS={wanted}");
    let stage = Stage::set("chaos", 3).await?;
    let clients = 16;
    let talk =
        Talk { clients, calls: usize::try_from(calls)?.div_ceil(clients), hang_up: true, ..Talk::default() };
    let (faults, ()) = tokio::join!(faults::at_random(&stage, seed, wanted), stage.talk(&talk));
    let faults = faults?;
    let summary = stage.judge().await?;
    let took = started.elapsed().as_secs();
    let total = faults.total();
    println!(
        "Random faults: {total} in {took} s, three replicas, sixteen clients; again by {replay}\n{faults}\n{summary}"
    );
    ensure!(summary.verdict.is_clean(), "a promise was broken; the seed was {seed}");
    ensure!(faults.each_kind_came(), "a kind of fault never came: {faults}");
    ensure!(faults.total() >= wanted && summary.calls() as u64 >= calls, "too little happened: {faults}");
    ensure!(summary.resumed > 0 && summary.failures + summary.cuts > 0, "no fault reached a call");
    ensure!(summary.verdict.of(papers::LOST) > 0, "no file was written");
    Ok(())
}

/// The same, with replicas that run an interrupted tool again, whatever its class.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unsafe_tool_that_runs_again_is_caught() -> Result<()> {
    let stage = Stage::with("rerun", 2, &[("HOLDFAST_MUTANT", "UnsafeToolRerun")]).await?;
    let talk = Talk { clients: 12, calls: 2, tools_ms: 1500, ..Talk::default() };
    let (faults, ()) = tokio::join!(faults::at_random(&stage, 1, 1), stage.talk(&talk));
    let (faults, summary) = (faults?, stage.judge().await?);
    let caught = summary.verdict.broken(checker::UNSAFE_TWICE);
    ensure!(caught > 0, "unsafe tools ran again, and nobody noticed: {faults}\n{summary}");
    Ok(())
}

/// A call that loses its replica goes on soon.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_goes_on_soon_after_its_replica_has_gone() -> Result<()> {
    let (rounds, calls) = (times_longer(), 12);
    let term = resume::measure(Leaving::Term, rounds, calls).await?;
    let kill = resume::measure(Leaving::Kill, rounds, calls).await?;
    let head = "| time to resume after | calls | p50 | p99 | slowest |\n|---|---|---|---|---|";
    println!("Time to resume, a lease of {} s\n{head}\n{term}\n{kill}", LEASE.as_secs());
    ensure!(term.percentile(99) < AFTER_A_STOP, "too slow after SIGTERM: {term}");
    ensure!(kill.percentile(99) < AFTER_A_KILL, "too slow after SIGKILL: {kill}");
    Ok(())
}

/// Dying before and after every store operation, model call and tool run: the next replica goes on from there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dying_at_any_line_loses_nothing() -> Result<()> {
    lines::die_at_each(Duration::from_secs(45)).await
}
