//! Random requests, sent to Redis and to the machine in memory on one clock: every answer must be the same, to the
//! last fence and millisecond.
//!
//! `HOLDFAST_PROPTEST_CASES` sets how many sequences are tried.

mod property;
mod support;

use std::cell::RefCell;
use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use property::fixture::Fixture;
use property::requests::{limits, operations};
use property::twins::Twins;

const CASES: u32 = 256;

/// Answers that a run must have seen, or it has proved nothing about them.
const MUST_BE_SEEN: [&str; 42] = [
    "Begin Ok Granted",
    "Begin Ok Waiting",
    "Begin Ok Done",
    "Begin Ok Expired",
    "Begin Ok Conflict",
    "Begin Ok Deleted",
    "Begin Ok Full",
    "Begin Ok SessionBusy",
    "Claim Ok Granted",
    "Claim Ok Held",
    "Claim Ok NothingToDo",
    "Append Ok Pulse",
    "Append Err LeaseLost",
    "Append Err Corrupt",
    "Renew Ok Pulse",
    "Renew Err LeaseLost",
    "Commit Ok Done",
    "Commit Ok Marked",
    "Commit Err LeaseLost",
    "Suspend Ok ",
    "Interrupt Ok Marked",
    "Interrupt Ok NoRunningCall",
    "Retry Ok Granted",
    "Retry Ok Waiting",
    "Retry Ok Done",
    "Retry Ok NotRetryable",
    "Retry Ok SessionBusy",
    "Retry Ok Unknown",
    "Rewrite Ok Done",
    "Rewrite Ok Mismatch",
    "Rewrite Ok SessionBusy",
    "Delete Ok true",
    "Delete Ok false",
    "Load Ok Some",
    "Load Ok None",
    "Events Ok Live",
    "Events Ok Done",
    "Events Ok Expired",
    "Events Ok Deleted",
    "Events Ok Unknown",
    "List Ok SessionPage",
    "Overdue Slot ann",
];

#[test]
fn redis_answers_as_the_machine_does() {
    let cases =
        std::env::var("HOLDFAST_PROPTEST_CASES").map_or(CASES, |cases| cases.parse().expect("a number"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let fixtures: Vec<_> =
        limits().into_iter().map(|limits| RefCell::new(runtime.block_on(Fixture::new(limits)))).collect();
    let answers = RefCell::new(BTreeMap::<String, u64>::new());
    let which = prop_oneof![4 => Just(0_usize), 1 => Just(1), 1 => Just(2)];
    let mut runner = TestRunner::new(ProptestConfig { cases, ..ProptestConfig::default() });
    let result = runner.run(&(which, operations()), |(which, operations)| {
        let mut fixture = fixtures[which].borrow_mut();
        runtime.block_on(async {
            Twins::clean(&mut fixture).await;
            let mut twins = Twins::new(&mut fixture);
            for operation in operations {
                twins.carry_out(operation).await;
            }
            twins.compare_all().await;
            twins.compare_announcements().await;
            twins.check_lifetimes().await;
            for (kind, count) in twins.answers {
                *answers.borrow_mut().entry(kind).or_default() += count;
            }
        });
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
    let answers = answers.into_inner();
    let total: u64 = answers.values().sum();
    println!("0 of {total} answers differ, in {cases} sequences: {answers:#?}");
    if cases >= CASES {
        let missing: Vec<_> = MUST_BE_SEEN.iter().filter(|kind| !answers.contains_key(**kind)).collect();
        assert!(missing.is_empty(), "never seen: {missing:?}");
    }
}
