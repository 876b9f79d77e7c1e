//! Real replicas, a real Redis, a fake model and fake tools that keep their own ledgers, and somebody who ends processes.
//! The judge reads only what clients were told, the ledgers, and the final states.
//!
//! `HOLDFAST_CHAOS_SEED`, `HOLDFAST_CHAOS_CALLS` and `HOLDFAST_CHAOS_FAULTS` make a run longer, or the same again.

#[path = "chaos/faults.rs"]
mod faults;
#[path = "chaos/lines.rs"]
mod lines;
#[path = "chaos/stage.rs"]
mod stage;

use std::time::Duration;

use anyhow::{Result, ensure};
use stage::{Stage, Talk};

/// SIGTERM is not a fault: whoever is connected stays connected, and sees one whole answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rolling_restarts_cut_nobody() -> Result<()> {
    let stage = Stage::set("rolling", 3).await?;
    let talk = Talk { sessions: 12, calls: 4, slow: true, hang_up: false };
    let (faults, ()) = tokio::join!(faults::restart_each_in_turn(&stage, 2), stage.talk(&talk));
    let faults = faults?;
    let summary = stage.judge().await?;
    println!("{summary}");
    ensure!(summary.verdict.is_clean(), "a promise was broken");
    ensure!(summary.cuts == 0, "{} streams were cut by SIGTERM", summary.cuts);
    ensure!(summary.failures == 0, "{} requests failed by SIGTERM", summary.failures);
    ensure!(
        faults >= 6 && summary.calls >= 48 && summary.resumed > 0,
        "too little happened: {faults} restarts, {summary}"
    );
    Ok(())
}

/// Everything else is: kill -9, a pause past the lease, Redis killed and restarted, in an order made by a seed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_pauses_and_a_restarted_redis_lose_nothing() -> Result<()> {
    let number =
        |name: &str, default: u64| std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(default);
    let seed = number("HOLDFAST_CHAOS_SEED", 1);
    let (calls, wanted) = (number("HOLDFAST_CHAOS_CALLS", 96), number("HOLDFAST_CHAOS_FAULTS", 9));
    println!(
        "replay with HOLDFAST_CHAOS_SEED={seed} HOLDFAST_CHAOS_CALLS={calls} HOLDFAST_CHAOS_FAULTS={wanted}"
    );
    let stage = Stage::set("chaos", 3).await?;
    let sessions = 16;
    let per_session = usize::try_from(calls)?.div_ceil(sessions);
    let talk = Talk { sessions, calls: per_session, slow: false, hang_up: true };
    let (faults, ()) = tokio::join!(faults::at_random(&stage, seed, wanted), stage.talk(&talk));
    let faults = faults?;
    let summary = stage.judge().await?;
    println!("{faults}\n{summary}");
    ensure!(summary.verdict.is_clean(), "a promise was broken; the seed was {seed}");
    ensure!(faults.each_kind_came(), "a kind of fault never came: {faults}");
    ensure!(faults.total() >= wanted && summary.calls as u64 >= calls, "too little happened: {faults}");
    ensure!(summary.resumed > 0 && summary.failures + summary.cuts > 0, "no fault reached a call");
    Ok(())
}

/// Dying before and after every store operation, model call and tool run: the next replica goes on from there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dying_at_any_line_loses_nothing() -> Result<()> {
    lines::die_at_each(Duration::from_secs(45)).await
}
