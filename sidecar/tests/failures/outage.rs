//! A server that is gone, silent, loading, full, or not the primary.

use std::time::{Duration, Instant};

use holdfast_sidecar::store::*;
use holdfast_tests::redis::Options;

use super::{Broken, config, talk};
use crate::support::eventually;
use crate::support::requests::*;

#[tokio::test]
async fn a_killed_server_loses_nothing_it_acknowledged() {
    let mut broken = Broken::new(Options::default());
    let talk = broken.talk.clone();
    let mut kill = || broken.server.restart().expect("a restart");

    let begin_it = Begin { stream: true, ..begin("one") };
    let grant = talk.granted_by(&begin_it).await;
    kill();
    assert_eq!(
        settled(|| talk.store.begin(&talk.slot, &begin_it)).await,
        Begun::Granted(Box::new(grant.clone()))
    );
    let append_it = append(&grant, 0, vec![step(StepKind::Message, "\"m\"")]);
    talk.append(&append_it).await.expect("append");
    talk.waiting(&begin("two"), 1).await;
    kill();
    settled(|| talk.store.append(&talk.slot, &append_it)).await;
    let events = vec![event(1, EventName::Started, "{}")];
    let renew_it = Renew { events, ..renew(&grant) };
    talk.renew(&renew_it).await.expect("renew");
    kill();
    settled(|| talk.store.renew(&talk.slot, &renew_it)).await;
    assert_eq!(talk.events("one", None).await.events.len(), 2);
    let commit_it = Commit { go_on: true, ..commit(&grant) };
    let next = talk.commit(&commit_it).await.expect("commit");
    kill();
    let again = settled(|| talk.store.commit(&talk.slot, &commit_it)).await;
    assert_eq!(again, Committed::Done { next: next.clone() });
    let second = Grant { call: *next.expect("two"), ..grant };
    talk.suspend(&suspend(&second)).await;
    kill();
    eventually("the server is back", || async { talk.store.ping().await.ok() }).await;
    assert!(talk.is_overdue().await);
    assert_eq!(talk.history().await, ["input of one", "m", "answer to one"]);
    assert!(talk.delete().await);
    kill();
    let once_more = begin("one");
    let again = settled(|| talk.store.begin(&talk.slot, &once_more)).await;
    assert_eq!(again, Begun::Deleted);
}

/// Sends the same request until it is answered: the first may find the old connection dead.
async fn settled<T, F>(mut send: impl FnMut() -> F) -> T
where
    F: Future<Output = Result<T, StoreError>>,
{
    eventually("an answer", || {
        let sent = send();
        async {
            match sent.await {
                Ok(answer) => Some(answer),
                Err(error) if error.is_transient() => None,
                Err(error) => panic!("{error}"),
            }
        }
    })
    .await
}

#[tokio::test]
async fn no_server_means_nothing_was_written() {
    let mut broken = Broken::new(Options::default().volatile());
    broken.talk.turn("one").await;
    broken.server.kill();
    // The socket's end is noticed a moment later.
    let error = eventually("the loss is noticed", || async {
        match broken.talk.store.begin(&broken.talk.slot, &begin("two")).await {
            Err(error @ StoreError::Unavailable(_)) => Some(error),
            Err(StoreError::Unanswered(_)) => None,
            other => panic!("{other:?}"),
        }
    })
    .await;
    assert!(error.is_transient() && !error.may_have_happened());
    let loaded = broken.talk.store.load(&broken.talk.slot, None).await;
    assert!(matches!(loaded, Err(StoreError::Unavailable(_))), "never an empty session: {loaded:?}");
    assert!(broken.talk.store.ping().await.is_err());
}

#[tokio::test]
async fn many_callers_share_one_failed_attempt() {
    let broken = Broken::new(Options::default().volatile());
    let stranger = talk(config(&broken.server));
    broken.server.pause().expect("pause");
    let started = Instant::now();
    let calls = (0..50).map(|_| stranger.store.ping());
    let answers = futures::future::join_all(calls).await;
    let took = started.elapsed();
    broken.server.resume().expect("resume");
    assert!(answers.iter().all(|answer| matches!(answer, Err(StoreError::Unavailable(_)))), "{answers:?}");
    assert!(took < Duration::from_secs(2), "one time-out after another: {took:?}");
}

#[tokio::test]
async fn a_silent_server_may_have_done_it() {
    let broken = Broken::new(Options::default().volatile());
    let talk = &broken.talk;
    let grant = talk.granted("one").await;
    broken.server.pause().expect("pause");
    let commit_it = commit(&grant);
    let answer = talk.commit(&commit_it).await;
    assert!(matches!(answer, Err(StoreError::Unanswered(_))), "{answer:?}");
    // The server had it all the time; the same request again finds it done.
    broken.server.resume().expect("resume");
    assert_eq!(settled(|| talk.store.commit(&talk.slot, &commit_it)).await, Committed::Done { next: None });
    assert_eq!(talk.history().await, ["input of one", "answer to one"]);
}

#[tokio::test]
async fn a_connection_lost_while_waiting_may_have_done_it() {
    let mut broken = Broken::new(Options::default().volatile());
    let grant = broken.talk.granted("one").await;
    broken.server.pause().expect("pause");
    let talk = broken.talk.clone();
    let waiting = tokio::spawn(async move { talk.commit(&commit(&grant)).await });
    tokio::time::sleep(Duration::from_millis(50)).await;
    broken.server.kill();
    let answer = waiting.await.expect("a task");
    assert!(matches!(answer, Err(StoreError::Unanswered(_))), "{answer:?}");
}

#[tokio::test]
async fn a_server_that_forgot_the_scripts_is_told_again() {
    let broken = Broken::new(Options::default().volatile());
    for call in ["one", "two", "three"] {
        broken.talk.turn(call).await;
        broken.command(&["SCRIPT", "FLUSH"]);
    }
    assert_eq!(broken.talk.history().await.len(), 6);
}

#[tokio::test]
async fn announcements_are_heard_again_after_a_restart() {
    let mut broken = Broken::new(Options::default());
    let mut heard = broken.talk.store.announcements();
    broken.talk.granted("one").await;
    for _ in 0..2 {
        eventually("an announcement", || async {
            let _ = broken.talk.store.interrupt(&broken.talk.slot, &id("one"), &blob("{}")).await;
            tokio::time::sleep(Duration::from_millis(5)).await;
            (!heard.is_empty()).then_some(())
        })
        .await;
        while heard.try_recv().is_ok() {}
        broken.server.restart().expect("a restart");
    }
}

#[tokio::test]
async fn a_full_server_lets_work_end_and_none_begin() {
    let broken = Broken::new(Options::default().volatile());
    let talk = &broken.talk;
    let grant = talk.granted("one").await;
    talk.waiting(&begin("two"), 1).await;
    let failing = Talk { slot: slot("failed"), ..talk.clone() };
    let failed = failing.granted("one").await;
    failing.commit(&Commit { ended: Ended::Failed, ..commit(&failed) }).await.expect("commit");
    assert_eq!(broken.command(&["CONFIG", "SET", "maxmemory", "1mb"]), "+OK");

    let before = broken.digest();
    let full = Err(StoreError::OutOfMemory);
    assert_eq!(talk.store.begin(&talk.slot, &begin("three")).await, full.clone().map(|()| Begun::Full));
    let append_it = append(&grant, 0, vec![step(StepKind::Message, "1")]);
    assert_eq!(talk.append(&append_it).await, full.clone().map(|()| Pulse::default()));
    let rewritten = failing.store.rewrite(&failing.slot, &rewrite(Condition::Exists, &[])).await;
    assert_eq!(rewritten, full.clone().map(|()| Rewritten::SessionBusy));
    let retried = failing.store.retry(&failing.slot, &retry("one", 0)).await;
    assert_eq!(retried, full.map(|()| Retried::Unknown));
    assert_eq!(broken.digest(), before, "nothing was written");

    talk.interrupt("one", "{}").await;
    let pulse = talk.renew(&renew(&grant)).await.expect("renew");
    let marks_seen = seen(pulse.mark.as_ref());
    talk.commit(&Commit { marks_seen, ..commit(&grant) }).await.expect("commit");
    let grant = talk.takeover(&claim()).await;
    talk.suspend(&suspend(&grant)).await;
    assert_eq!(talk.history().await.len(), 2);
    assert!(talk.delete().await);
    assert_eq!(broken.command(&["CONFIG", "SET", "maxmemory", "0"]), "+OK");
    talk.granted("three").await;
}

#[tokio::test]
async fn a_replica_is_written_to_by_nobody() {
    let broken = Broken::new(Options::default().volatile().with("repl-diskless-sync-delay", "0"));
    broken.talk.turn("one").await;
    let port = broken.server.port().to_string();
    let replica = Broken::new(Options::default().volatile().with("replicaof", &format!("127.0.0.1 {port}")));
    eventually("replication", || async {
        replica.command(&["INFO", "replication"]).contains("master_link_status:up").then_some(())
    })
    .await;
    let talk = &replica.talk;
    let answer = talk.store.begin(&talk.slot, &begin("two")).await;
    assert_eq!(answer, Err(StoreError::ReadOnly));
    let deleted = talk.store.delete(&talk.slot).await;
    assert_eq!(deleted, Err(StoreError::ReadOnly));
    assert_eq!(broken.talk.history().await.len(), 2);
}

#[tokio::test]
async fn a_loading_server_says_so() {
    // A pause a command, and a look at the network every thousand or so.
    let mut broken = Broken::new(Options::default().with("key-load-delay", "100"));
    broken.talk.turn("one").await;
    let script = "for i = 1, 12000 do redis.call('SET', 'filler' .. i, '') end";
    broken.command(&["EVAL", script, "0"]);
    broken.server.restart_without_waiting().expect("a restart");
    let talk = talk(config(&broken.server));
    let answer = eventually("the server answers", || async {
        match talk.store.load(&talk.slot, None).await {
            Err(StoreError::Unavailable(_) | StoreError::Unanswered(_)) => None,
            answer => Some(answer),
        }
    })
    .await;
    assert_eq!(answer, Err(StoreError::Loading));
    eventually("the data is loaded", || async { talk.store.load(&talk.slot, None).await.ok() }).await;
    assert_eq!(talk.history().await.len(), 2);
}
