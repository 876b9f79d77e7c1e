//! Who is woken by what.

use std::sync::Arc;

use k8s_openapi::{
    api::core::v1::{Secret, Service},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use kube::runtime::watcher::Event;

use super::*;
use crate::seen::Seen;

fn meta(name: &str, version: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.into()),
        namespace: Some("ns".into()),
        uid: Some("u".into()),
        resource_version: Some(version.into()),
        ..ObjectMeta::default()
    }
}

fn secret(name: &str, version: &str) -> Seen<Secret> {
    Seen::of(meta(name, version), version.parse().unwrap())
}

fn service(version: &str) -> Seen<Service> {
    let owner = OwnerReference {
        api_version: "holdfast.dev/v1alpha1".into(),
        kind: "Agent".into(),
        name: "support".into(),
        uid: "a".into(),
        controller: Some(true),
        ..OwnerReference::default()
    };
    let meta = ObjectMeta { owner_references: Some(vec![owner]), ..meta("support", version) };
    Seen::of(meta, version.parse().unwrap())
}

fn complete<S: Sight>(live: &Arc<Live>) -> Follower {
    let mut follower = Follower::new(Arc::clone(live), S::KIND, "");
    follower.take::<S>(&Event::Init);
    follower.take::<S>(&Event::InitDone);
    follower
}

#[test]
fn a_secret_that_appears_wakes_who_mentioned_it() {
    let live = Arc::new(Live::new(1));
    let mut follower = complete::<Seen<Secret>>(&live);
    let support = Place::new("ns", "support");
    live.mention(&support, &[Key::new(Kind::Secret, "ns", "redis")]);
    assert_eq!(follower.take(&Event::Apply(secret("redis", "1"))), vec![support.clone()]);
    live.mention(&support, &[Key::new(Kind::Secret, "ns", "other")]);
    assert!(follower.take(&Event::Apply(secret("redis", "2"))).is_empty());
}

#[test]
fn what_vanished_while_the_watch_was_away_is_forgotten() {
    let live = Arc::new(Live::new(1));
    let mut follower = Follower::new(Arc::clone(&live), Kind::Secret, "");
    live.mention(&Place::new("ns", "support"), &[Key::new(Kind::Secret, "ns", "redis")]);
    for event in [Event::Init, Event::InitApply(secret("redis", "1")), Event::InitDone] {
        assert!(follower.take(&event).is_empty(), "nobody has looked yet");
    }
    assert!(live.is_complete());
    assert!(live.get(&Key::new(Kind::Secret, "ns", "redis")).is_some());
    // As it was: no news. Gone: news.
    for event in [Event::Init, Event::InitApply(secret("redis", "1")), Event::InitDone] {
        assert!(follower.take(&event).is_empty());
    }
    follower.take::<Seen<Secret>>(&Event::Init);
    assert_eq!(follower.take::<Seen<Secret>>(&Event::InitDone).len(), 1);
    assert!(live.get(&Key::new(Kind::Secret, "ns", "redis")).is_none());
}

#[test]
fn our_own_write_is_no_news_and_anybody_elses_is() {
    let live = Arc::new(Live::new(1));
    let mut follower = complete::<Seen<Service>>(&live);
    let key = Key::new(Kind::Service, "ns", "support");
    let mut see = |version: &str| follower.take(&Event::Apply(service(version))).len();
    assert!(!live.wrote(&key, &service("5"), 1, None));
    assert_eq!(see("5"), 0);
    assert_eq!(see("4"), 0, "the watch is behind");
    assert!(live.get(&key).is_some_and(|entry| entry.is_as_applied(1)));
    assert_eq!(see("6"), 1);
    assert!(live.get(&key).is_some_and(|entry| !entry.is_as_applied(1)));
}

#[test]
fn an_event_that_overtakes_the_answer_is_no_news_unless_it_is_newer() {
    let live = Arc::new(Live::new(1));
    let mut follower = complete::<Seen<Service>>(&live);
    let key = Key::new(Kind::Service, "ns", "support");
    live.wrote(&key, &service("5"), 1, None);
    let mut see = |version: &str| follower.take(&Event::Apply(service(version))).len();
    let awaited = live.awaits(&key);
    assert_eq!(see("6"), 0);
    assert!(!live.wrote(&key, &service("6"), 2, None));
    drop(awaited);
    let _awaited = live.awaits(&key);
    assert_eq!(see("8"), 0);
    assert!(live.wrote(&key, &service("7"), 3, None), "somebody has changed it since");
    assert!(live.get(&key).is_some_and(|entry| !entry.is_as_applied(3)));
    assert_eq!(see("9"), 1, "and from now on it is news again");
    drop(live.awaits(&key));
    assert_eq!(see("10"), 1, "whoever gave up hears of it");
}

#[test]
fn an_agent_is_settled_until_one_of_its_objects_changes() {
    let live = Arc::new(Live::new(1));
    let mut follower = complete::<Seen<Service>>(&live);
    let (agent, key) = (Place::new("ns", "support"), Key::new(Kind::Service, "ns", "support"));
    let both = [key.clone(), Key::new(Kind::Deployment, "ns", "support")];
    live.wrote(&key, &service("5"), 1, None);
    live.settle(&agent, 7, &both);
    assert!(!live.is_settled(&agent, 7), "one of them is not there");
    live.settle(&agent, 7, &both[..1]);
    assert!(live.is_settled(&agent, 7));
    assert!(!live.is_settled(&agent, 8), "it asks for something else now");
    follower.take(&Event::Apply(service("5")));
    assert!(live.is_settled(&agent, 7), "our own write");
    assert_eq!(follower.take(&Event::Apply(service("6"))), vec![agent.clone()]);
    assert!(!live.is_settled(&agent, 7), "somebody changed it");
    live.settle(&agent, 7, &both[..1]);
    assert!(!live.is_settled(&agent, 7), "somebody changed it while we were at it");
    live.wrote(&key, &service("7"), 1, None);
    live.settle(&agent, 7, &both[..1]);
    follower.take(&Event::Delete(service("7")));
    assert!(!live.is_settled(&agent, 7), "somebody deleted it");
}

#[test]
fn who_loses_an_object_is_woken() {
    let live = Arc::new(Live::new(1));
    let mut follower = complete::<Seen<Service>>(&live);
    follower.take(&Event::Apply(service("5")));
    let nobodys = Seen::<Service>::of(meta("support", "6"), 6);
    assert_eq!(follower.take(&Event::Apply(nobodys)), vec![Place::new("ns", "support")]);
}
