//! What is forgotten, and when.

use std::time::Duration;

use holdfast_sidecar::store::*;

use super::Bench;
use crate::support::eventually;
use crate::support::requests::*;

const SOON: Duration = Duration::from_millis(80);

pub async fn a_reply_is_forgotten_after_its_time(bench: Bench) {
    let (_open, talk) = bench.talk(Limits { reply_ttl: SOON, ..limits() });
    let grant = talk.turn("one").await;
    assert!(matches!(talk.status("one").await, CallStatus::Done(_)));
    eventually("the reply expires", || async {
        (talk.status("one").await == CallStatus::Expired).then_some(())
    })
    .await;
    assert_eq!(talk.begin(&begin("one")).await, Begun::Expired, "known, and not run again");
    let other = Begin { digest: "other".to_owned(), ..begin("one") };
    assert_eq!(talk.begin(&other).await, Begun::Conflict);
    assert_eq!(talk.retry(&retry("one", 0)).await, Retried::Unknown);
    assert_eq!(talk.commit(&commit(&grant)).await, Err(StoreError::LeaseLost));
    assert_eq!(talk.history().await.len(), 2, "what was said stays");
}

pub async fn events_are_forgotten_after_theirs(bench: Bench) {
    let (_open, talk) = bench.talk(Limits { event_ttl: SOON, ..limits() });
    let grant = talk.granted("one").await;
    tokio::time::sleep(SOON * 2).await;
    assert_eq!(talk.events("one", None).await.events.len(), 1, "the end of the call counts, not its begin");
    talk.commit(&commit(&grant)).await.expect("commit");
    eventually("the events expire", || async {
        talk.events("one", None).await.events.is_empty().then_some(())
    })
    .await;
    let page = talk.events("one", None).await;
    assert!(!page.gap && matches!(page.status, CallStatus::Done(_)));
}

pub async fn a_session_is_forgotten_whole(bench: Bench) {
    let (_open, talk) = bench.talk(Limits { session_ttl: SOON, ..limits() });
    let old = talk.turn("one").await;
    let left = talk.granted("two").await;
    eventually("the session expires", || async {
        talk.store.load(&talk.slot, None).await.expect("load").is_none().then_some(())
    })
    .await;
    assert_eq!(talk.commit(&commit(&left)).await, Err(StoreError::LeaseLost));
    assert_eq!(talk.claim(&claim()).await, Claimed::NothingToDo);
    assert!(!talk.is_overdue().await);
    assert_eq!(talk.status("one").await, CallStatus::Unknown);
    assert_eq!(talk.status("two").await, CallStatus::Unknown);
    assert_eq!(talk.store.list(&id("ann"), 10, None).await.expect("list").sessions, []);
    let new = talk.granted("one").await;
    assert!(new.token.fence > left.token.fence && left.token.fence > old.token.fence);
    assert_eq!((new.session.version, new.history.messages.len(), new.call.steps.len()), (0, 0, 0));
    assert_eq!(new.history.meta, Some(Blob::empty()));
    assert_eq!(talk.live().await.len(), 1);
    assert_eq!(talk.events("one", None).await.events.len(), 1);
}

pub async fn every_write_keeps_a_session(bench: Bench) {
    let (_open, talk) = bench.talk(Limits { session_ttl: Duration::from_millis(250), ..limits() });
    talk.turn("one").await;
    for n in 0..6 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        talk.turn(&format!("more {n}")).await;
    }
    assert_eq!(talk.history().await.len(), 14);
    let grant = talk.granted("last").await;
    for n in 0..3 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        talk.append(&append(&grant, n, vec![step(StepKind::Message, "1")])).await.expect("append");
    }
    talk.commit(&commit(&grant)).await.expect("commit");
    assert_eq!(talk.history().await.len(), 19);
    assert_eq!(talk.store.list(&id("ann"), 10, None).await.expect("list").sessions.len(), 1);
}

pub async fn a_tombstone_is_forgotten_too(bench: Bench) {
    let (_open, talk) = bench.talk(Limits { reply_ttl: SOON, ..limits() });
    let old = talk.turn("one").await;
    talk.delete().await;
    assert_eq!(talk.begin(&begin("one")).await, Begun::Deleted);
    eventually("the tombstone expires", || async {
        (talk.status("one").await == CallStatus::Unknown).then_some(())
    })
    .await;
    let new = talk.granted("one").await;
    assert!(new.token.fence > old.token.fence);
    assert_eq!(new.session.version, 0);
}
