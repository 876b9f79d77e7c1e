//! Schedules that chance would not find: each is one story, told by hand.

use std::collections::BTreeMap;

use holdfast_sidecar::state::{Id, Slot};
use holdfast_sidecar::store::OnBusy;

use super::plan::{Act, CallPlan, Fault, Hearing, Odds, Patience, Plan, Said, key_of};

fn quiet(seed: u64) -> Plan {
    let mut plan = Plan::new(seed);
    plan.slots = vec![Slot::new(Some("u0"), "s0").expect("short ids")];
    (plan.clients, plan.calls, plan.timed) = (Vec::new(), BTreeMap::new(), Vec::new());
    (plan.odds, plan.hearing, plan.troubled_until) = (Odds::default(), Hearing::All, 10_000);
    plan.settings.on_busy = OnBusy::Enqueue;
    plan.settings.max_running_calls = 512;
    plan.settings.park = false;
    plan.limits.queue_limit = 32;
    plan.add_probes();
    plan
}

fn call(plan: &mut Plan, id: &str, ms: u64) -> Act {
    let call = CallPlan {
        key: key_of(&plan.slots[0], id),
        slot: 0,
        id: Id::new("call", id).expect("a short id"),
        messages: 1,
        patience: Patience::Patient { connection: 20_000 },
        stream: false,
        twin: false,
        asks_again: false,
        retries_failure: false,
        script: vec![Said::Answer { ms, pieces: 0, reset: false }],
        poison: None,
    };
    let key = call.key.clone();
    plan.calls.insert(key.clone(), call);
    Act::Call(key)
}

/// The store falls back to a copy in which the holder's first call is not committed yet, while the holder, under the
/// same lease, is about to commit its second.
pub fn failover_between_two_commits(seed: u64) -> Plan {
    let mut plan = quiet(seed);
    let first = call(&mut plan, "c0", 1_000);
    let second = call(&mut plan, "c1", 1_000);
    plan.clients = vec![vec![first], vec![Act::Pause(100), second]];
    plan.timed = vec![(500, Fault::Failover { ms: 1_000 })];
    plan
}
