//! What is said when, without a cluster.

use holdfast_crds::Agent;
use k8s_openapi::jiff::Timestamp;

use super::*;

fn agent(generation: i64) -> Agent {
    let spec = serde_json::json!({"model": {"provider": "Scripted"}, "stateStore": {"type": "InMemory"}});
    let mut agent = Agent::new("a", serde_json::from_value(spec).unwrap());
    agent.metadata.generation = Some(generation);
    agent
}

fn place() -> Place {
    Place::new("ns", "a")
}

fn verdict(hold: Option<Hold>) -> Verdict {
    let fine = || Finding::yes("Fine", "fine");
    Verdict { accepted: fine(), resolved: fine(), store_ready: fine(), store_durable: fine(), hold }
}

fn rollout(generation: i64, updated: i32, available: i32) -> Rollout {
    Rollout {
        generation,
        observed_generation: generation,
        desired: 2,
        replicas: 2,
        updated,
        ready: available,
        available,
        ..Rollout::default()
    }
}

fn said<'a>(status: &'a AgentStatus, type_: &str) -> &'a Condition {
    status.conditions.iter().find(|condition| condition.type_ == type_).unwrap()
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

#[test]
fn looking_again_changes_nothing() {
    let rollout = rollout(1, 2, 2);
    let first =
        status(&place(), &agent(1), &AgentStatus::default(), &verdict(None), Some(&rollout), None, at(1));
    let second = status(&place(), &agent(1), &first, &verdict(None), Some(&rollout), None, at(2));
    assert_eq!(first, second);
    assert_eq!(said(&first, "Ready").status, "True");
    assert_eq!(said(&first, "Progressing").reason, "Complete");
}

#[test]
fn ready_speaks_of_a_new_manifest_only_once_it_runs() {
    let old = status(
        &place(),
        &agent(1),
        &AgentStatus::default(),
        &verdict(None),
        Some(&rollout(1, 2, 2)),
        None,
        at(1),
    );
    let rolling = status(&place(), &agent(2), &old, &verdict(None), Some(&rollout(2, 1, 2)), None, at(2));
    assert_eq!(said(&rolling, "Ready").status, "True");
    assert_eq!(said(&rolling, "Ready").observed_generation, Some(1));
    assert_eq!(said(&rolling, "Progressing").status, "True");
    assert_eq!(rolling.observed_generation, Some(2));
    let done = status(&place(), &agent(2), &rolling, &verdict(None), Some(&rollout(2, 2, 2)), None, at(3));
    assert_eq!(said(&done, "Ready").observed_generation, Some(2));
    assert_eq!(said(&done, "Ready").last_transition_time, said(&old, "Ready").last_transition_time);
}

#[test]
fn what_holds_it_up_is_why_it_is_not_ready() {
    for (hold, reason) in [
        (Hold::NotAccepted, "NotAccepted"),
        (Hold::Unresolved, "UnresolvedRefs"),
        (Hold::StoreRefuses, "StateStoreNotReady"),
    ] {
        let held = status(
            &place(),
            &agent(1),
            &AgentStatus::default(),
            &verdict(Some(hold)),
            Some(&rollout(1, 2, 2)),
            None,
            at(1),
        );
        assert_eq!(
            (said(&held, "Ready").status.as_str(), said(&held, "Ready").reason.as_str()),
            ("False", reason)
        );
        assert_eq!(said(&held, "Progressing").reason, "Held");
        assert!(said(&held, "Progressing").message.contains("left as it is"));
        assert_eq!(held.ready_replicas, 2, "what runs is still counted");
    }
}

#[test]
fn a_failure_is_told() {
    let error = Error::NameTaken { object: "Service a".into() };
    let failed =
        status(&place(), &agent(1), &AgentStatus::default(), &verdict(None), None, Some(&error), at(1));
    assert_eq!(said(&failed, "Progressing").reason, "ApplyFailed");
    assert!(said(&failed, "Progressing").message.contains("Service a"));
    assert_eq!(said(&failed, "Ready").reason, "ReplicasUnavailable");
}

#[test]
fn nothing_asked_for_is_not_ready() {
    let none = Rollout { generation: 1, observed_generation: 1, ..Rollout::default() };
    let zero = status(&place(), &agent(1), &AgentStatus::default(), &verdict(None), Some(&none), None, at(1));
    assert_eq!(said(&zero, "Ready").reason, "ScaledToZero");
}

#[test]
fn an_event_for_every_change_of_mind() {
    let first = status(&place(), &agent(1), &AgentStatus::default(), &verdict(None), None, None, at(1));
    let told = |old: &AgentStatus, new: &AgentStatus| -> Vec<(String, bool)> {
        news(old, new).into_iter().map(|(condition, warning)| (condition.reason.clone(), warning)).collect()
    };
    assert!(told(&AgentStatus::default(), &first).is_empty(), "nothing to warn of");
    let running = rollout(1, 2, 2);
    let ready = status(&place(), &agent(1), &first, &verdict(None), Some(&running), None, at(2));
    assert_eq!(told(&first, &ready), [("Ready".to_owned(), false)], "which says that it is complete too");
    let rolling = status(&place(), &agent(2), &ready, &verdict(None), Some(&rollout(2, 1, 2)), None, at(3));
    assert_eq!(told(&ready, &rolling), [("RollingOut".to_owned(), false)]);
    let done = status(&place(), &agent(2), &rolling, &verdict(None), Some(&rollout(2, 2, 2)), None, at(4));
    assert_eq!(told(&rolling, &done), [("Complete".to_owned(), false)]);
    let held =
        status(&place(), &agent(2), &done, &verdict(Some(Hold::StoreRefuses)), Some(&running), None, at(5));
    let warned = [("Held".to_owned(), true), ("StateStoreNotReady".to_owned(), true)];
    assert_eq!(told(&done, &held), warned);
}
