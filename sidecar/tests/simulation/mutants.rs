//! The proof of the bench: every rule of the protocol, left out, is missed by a promise.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::Mutex;

use holdfast_sidecar::mutants::{self, Mutant};
use holdfast_sidecar::session::Settings;

use super::directed;
use super::plan::Plan;
use super::schedule;
use super::world::Promise;

/// Seeds within which each mutant must be caught.
const WITHIN: u64 = 1_000;

struct Caught {
    seeds: u64,
    by: BTreeSet<Promise>,
    how: String,
}

fn plan(mutant: Mutant, seed: u64) -> Plan {
    match mutant {
        Mutant::NoVersionCheck => directed::failover_between_two_commits(seed),
        _ => Plan::new(seed),
    }
}

fn hunt(mutant: Mutant) -> Option<Caught> {
    (1..=WITHIN).find_map(|seed| {
        let violations = mutants::with(Some(mutant), || schedule::run(plan(mutant, seed), false)).violations;
        let first = violations.first()?;
        let by = violations.iter().map(|violation| violation.promise).collect();
        Some(Caught { seeds: seed, by, how: first.detail.clone() })
    })
}

#[test]
fn every_rule_left_out_breaks_a_promise() {
    let (next, caught) = (Mutex::new(Mutant::ALL.into_iter()), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let hunter = std::thread::Builder::new().name("schedules".into());
            let hunt_all = || {
                loop {
                    let Some(mutant) = next.lock().expect("whole").next() else { return };
                    let found = hunt(mutant);
                    caught.lock().expect("whole").push((mutant, found));
                }
            };
            hunter.spawn_scoped(scope, hunt_all).expect("a thread");
        }
    });
    let mut caught = caught.into_inner().expect("whole");
    caught.sort_by_key(|(mutant, _)| *mutant);
    let mut table = String::from("mutant → broken promises → seeds needed\n");
    for (mutant, found) in &caught {
        let mutant = format!("{mutant:?}");
        let line = match found {
            Some(Caught { seeds, by, how }) => {
                let by: Vec<_> = by.iter().map(|promise| format!("{promise:?}")).collect();
                format!("  {mutant:<28} {:<24} {seeds:>5}   {how}", by.join(" "))
            }
            None => format!("  {mutant:<28} NOT CAUGHT within {WITHIN} seeds"),
        };
        writeln!(table, "{line}").expect("a string");
    }
    println!("{table}");
    assert!(caught.iter().all(|(_, found)| found.is_some()), "{table}");
}

/// Without a mutant the directed schedules keep their promises: it is the rule that saves them, not the schedule.
#[test]
fn directed_schedules_keep_the_promises() {
    for seed in 1..=20 {
        let outcome = schedule::run(directed::failover_between_two_commits(seed), false);
        assert!(outcome.violations.is_empty(), "seed {seed}: {:#?}", outcome.violations);
    }
}

/// Who judges a history with a message missing and finds nothing is not looking.
#[test]
fn a_history_without_a_message_is_noticed() {
    for seed in 1..=20 {
        let mut plan = Plan { canary: true, ..Plan::new(seed) };
        // Where only a history's end is sent, nobody need notice what is missing before it.
        plan.settings.context_window = Settings::default().context_window;
        let outcome = schedule::run(plan, false);
        assert!(!outcome.violations.is_empty(), "seed {seed}: the canary sang and nobody heard it");
    }
}
