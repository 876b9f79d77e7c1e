//! A seeded simulation of the real runner: several replicas over one store in memory, under a virtual clock, with
//! clients that retry and faults at any moment. `docs/verification.md` says how to read it.
//!
//! ```text
//! seed ─▶ plan ─▶ schedule ── clients ─▶ pods (Sessions) ─▶ store, model, tools      faults between all of them
//!                    └──▶ checker ◀── what clients were told, the ledgers, the last states
//! ```

#![allow(clippy::unwrap_used, reason = "a simulation that cannot go on must stop")]

mod admin;
mod checker;
mod client;
mod directed;
mod model;
mod mutants;
mod plan;
mod pod;
mod report;
mod rng;
mod schedule;
mod store;
mod stream;
mod tools;
mod world;

use plan::Plan;
use report::Report;

/// In every test run; `make soak` runs a million.
const SCHEDULES: u64 = 20_000;

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} must be a number")))
}

/// Replays one seed with its trace where `HOLDFAST_SIM_SEED` names one.
#[test]
fn a_named_seed_is_replayed_with_its_trace() {
    let Some(seed) = variable("HOLDFAST_SIM_SEED") else { return };
    let outcome = schedule::run(Plan::new(seed), true);
    for line in &outcome.trace.lines {
        println!("{line}");
    }
    println!("seed {seed}: trace {:016x}", outcome.trace.hash);
    assert!(outcome.violations.is_empty(), "{:#?}", outcome.violations);
}

#[test]
fn promises_hold_over_many_schedules() {
    if variable("HOLDFAST_SIM_SEED").is_some() {
        return;
    }
    let schedules = variable("HOLDFAST_SIM_SCHEDULES").unwrap_or(SCHEDULES);
    let first = variable("HOLDFAST_SIM_FIRST").unwrap_or(1);
    let report = Report::of_seeds(first, schedules);
    println!("{report}");
    report.assert_kept();
    report.assert_enough();
}

#[test]
fn a_seed_replays_identically() {
    for seed in 1..=100 {
        let [first, second] = [(), ()].map(|()| schedule::run(Plan::new(seed), true));
        if first.trace.hash != second.trace.hash {
            let at = first.trace.lines.iter().zip(&second.trace.lines).position(|(a, b)| a != b);
            let line = at.map(|at| (at, &first.trace.lines[at], &second.trace.lines[at]));
            panic!("seed {seed} has two traces; they part at {line:?}");
        }
    }
}

#[test]
fn what_broke_once_does_not_break_again() {
    let lines = include_str!("corpus.txt").lines().filter(|line| !line.starts_with('#'));
    for line in lines.filter(|line| !line.trim().is_empty()) {
        let seed = line.split_whitespace().next().and_then(|seed| seed.parse().ok());
        let outcome = schedule::run(Plan::new(seed.expect("a line begins with its seed")), false);
        assert!(outcome.violations.is_empty(), "{line}: {:#?}", outcome.violations);
    }
}
