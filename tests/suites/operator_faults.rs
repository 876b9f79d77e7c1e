//! The operator when things go wrong around it: each test has operators, and often a proxy, of its own.

#[path = "operator/bench.rs"]
mod bench;
#[path = "operator/faults.rs"]
mod faults;
#[path = "operator/proxy.rs"]
mod proxy;
#[path = "operator/setup.rs"]
mod setup;

use std::process::ExitCode;

use anyhow::Result;
use bench::{Bench, Operator, trials};

fn main() -> Result<ExitCode> {
    let at_once = trials![
        faults::another_leads_when_the_leader_is_gone,
        faults::errors_are_told_and_tried_again,
        faults::a_failure_that_passes_is_not_told,
        faults::a_lookup_that_fails_is_told,
        faults::silence_is_not_waited_for,
        faults::broken_watches_are_taken_up_again,
        faults::a_restart_in_the_middle_is_finished_by_the_next,
        faults::two_namespaces_are_enough,
        faults::what_it_does_can_be_traced,
    ];
    // There is one lease.
    let in_order = trials![faults::a_leader_that_cannot_renew_leaves];
    bench::run(start, at_once, in_order)
}

async fn start() -> Result<(Bench, Option<Operator>)> {
    let bench = Bench::start(setup::operator_program()?, false).await?;
    bench.namespace("holdfast-system").await?;
    setup::install_rights(&bench).await?;
    setup::install_definition(&bench).await?;
    Ok((bench, None))
}
