//! Everybody else's: interrupt, rewrite, delete, retry, and looking.

use holdfast_sidecar::store::*;

use super::Bench;
use crate::support::requests::*;

pub async fn interrupt_collects_marks_and_finds_only_live_calls(bench: Bench) {
    let (_open, talk) = bench.talk(limits());
    assert_eq!(talk.interrupt("one", "{}").await, Interrupted::NoRunningCall);
    let grant = talk.granted("one").await;
    talk.waiting(&begin("two"), 1).await;
    assert_eq!(talk.interrupt("one", "{\"a\":1}").await, Interrupted::Marked);
    assert_eq!(talk.interrupt("one", "{\"a\":2}").await, Interrupted::Marked);
    assert_eq!(talk.interrupt("two", "{\"a\":3}").await, Interrupted::Marked);
    let pulse = talk.append(&append(&grant, 0, vec![])).await.expect("append");
    assert_eq!(pulse.mark, Some(blob("[{\"a\":1},{\"a\":2}]")));
    let marks_seen = seen(pulse.mark.as_ref());
    let next = talk.commit(&Commit { go_on: true, marks_seen, ..commit(&grant) }).await.expect("commit");
    assert_eq!(next.expect("two").mark, Some(blob("[{\"a\":3}]")));
    assert_eq!(talk.interrupt("one", "{}").await, Interrupted::NoRunningCall);
}

pub async fn a_commit_that_has_not_seen_every_mark_is_shown_them(bench: Bench) {
    let (_open, talk) = bench.talk(limits());
    let grant = talk.granted("one").await;
    let unmarked = commit(&grant);
    talk.interrupt("one", "{\"a\":1}").await;
    talk.interrupt("one", "{\"a\":2}").await;
    let first = blob("[{\"a\":1}]");
    let all = blob("[{\"a\":1},{\"a\":2}]");
    for blind in [&unmarked, &Commit { marks_seen: first.len(), ..unmarked.clone() }] {
        let shown = talk.store.commit(&talk.slot, blind).await.expect("an answer");
        assert_eq!(shown, Committed::Marked(all.clone()));
    }
    assert_eq!(talk.live().await.len(), 1, "nothing was written");
    let end = Commit { marks_seen: all.len(), ..unmarked };
    for _ in 0..2 {
        assert_eq!(talk.commit(&end).await.expect("commit"), None);
    }
    assert_eq!(talk.history().await, ["input of one", "answer to one"]);
}

pub async fn rewrite_follows_its_condition(bench: Bench) {
    let (_open, talk) = bench.talk(limits());
    let missing = Rewritten::Mismatch { version: None };
    assert_eq!(talk.rewrite(&rewrite(Condition::Exists, &["1"])).await, missing);
    assert_eq!(talk.rewrite(&rewrite(Condition::Version(0), &["1"])).await, missing);
    let made = rewrite(Condition::Absent, &["1", "2"]);
    assert_eq!(talk.rewrite(&made).await, Rewritten::Done { version: 1 });
    let loaded = talk.load().await;
    assert_eq!((&loaded.messages, &loaded.meta), (&made.messages, &made.meta));
    assert_eq!((loaded.head.epoch, loaded.head.turns, loaded.head.version), (made.epoch, 7, 1));

    let there = Rewritten::Mismatch { version: Some(1) };
    assert_eq!(talk.rewrite(&rewrite(Condition::Absent, &[])).await, there);
    assert_eq!(talk.rewrite(&rewrite(Condition::Version(2), &[])).await, there);
    assert_eq!(talk.load().await, loaded, "a refused one changes nothing");
    let put = talk.rewrite(&rewrite(Condition::Version(1), &["3"])).await;
    assert_eq!(put, Rewritten::Done { version: 2 });
    let cleared = rewrite(Condition::Exists, &[]);
    assert_eq!(talk.rewrite(&cleared).await, Rewritten::Done { version: 3 });
    let loaded = talk.load().await;
    assert_eq!((loaded.messages.len(), loaded.head.epoch), (0, cleared.epoch));
    talk.turn("one").await;
    assert_eq!(talk.history().await, ["input of one", "answer to one"]);
}

pub async fn rewrite_knows_its_nonce(bench: Bench) {
    let (_open, talk) = bench.talk(limits());
    let made = rewrite(Condition::Absent, &["1"]);
    for _ in 0..2 {
        assert_eq!(talk.rewrite(&made).await, Rewritten::Done { version: 1 });
    }
    talk.turn("one").await;
    assert_eq!(talk.rewrite(&made).await, Rewritten::Done { version: 1 }, "and does nothing");
    assert_eq!(talk.load().await.head.version, 2);
    let put = rewrite(Condition::Version(2), &["2"]);
    for _ in 0..2 {
        assert_eq!(talk.rewrite(&put).await, Rewritten::Done { version: 3 });
    }
    assert_eq!(talk.rewrite(&made).await, Rewritten::Mismatch { version: Some(3) }, "the last one only");
}

pub async fn rewrite_waits_for_no_call(bench: Bench) {
    let (_open, talk) = bench.talk(limits());
    let grant = talk.granted("one").await;
    assert_eq!(talk.rewrite(&rewrite(Condition::Exists, &[])).await, Rewritten::SessionBusy);
    talk.suspend(&suspend(&grant)).await;
    assert_eq!(talk.rewrite(&rewrite(Condition::Exists, &[])).await, Rewritten::SessionBusy, "suspended");
    let grant = talk.takeover(&claim()).await;
    talk.commit(&commit(&grant)).await.expect("commit");
    assert!(matches!(talk.rewrite(&rewrite(Condition::Exists, &[])).await, Rewritten::Done { .. }));
    assert!(matches!(talk.begin(&begin("one")).await, Begun::Done(_)), "finished calls are still known");
}

pub async fn a_fork_is_a_session_made_by_rewrite(bench: Bench) {
    let (_open, talk) = bench.talk(limits());
    talk.turn("one").await;
    let loaded = talk.load().await;
    let fork = Talk { slot: slot("fork"), ..talk.clone() };
    let copy = Rewrite { messages: loaded.messages.clone(), ..rewrite(Condition::Absent, &[]) };
    assert_eq!(fork.rewrite(&copy).await, Rewritten::Done { version: 1 });
    fork.turn("one").await;
    assert_eq!(fork.history().await.len(), 4, "ids are the session's own");
    assert_eq!(talk.load().await, loaded);
}

pub async fn delete_fences_off_the_run_and_remembers_its_calls(bench: Bench) {
    let (_open, talk) = bench.talk(limits());
    assert!(!talk.delete().await, "nothing there");
    talk.turn("done").await;
    let grant = talk.granted("running").await;
    talk.append(&append(&grant, 0, vec![step(StepKind::Message, "1")])).await.expect("append");
    talk.waiting(&begin("queued"), 1).await;
    assert!(talk.delete().await);
    assert!(!talk.delete().await);

    assert_eq!(talk.renew(&renew(&grant)).await, Err(StoreError::LeaseLost));
    assert_eq!(talk.append(&append(&grant, 1, vec![])).await, Err(StoreError::LeaseLost));
    assert_eq!(talk.commit(&commit(&grant)).await, Err(StoreError::LeaseLost));
    assert_eq!(talk.store.load(&talk.slot, None).await, Ok(None));
    assert_eq!(talk.claim(&claim()).await, Claimed::NothingToDo);
    assert!(!talk.is_overdue().await && talk.live().await.is_empty());
    for call in ["done", "running", "queued"] {
        assert_eq!(talk.begin(&begin(call)).await, Begun::Deleted, "{call}");
        assert_eq!(talk.status(call).await, CallStatus::Deleted, "{call}");
        let page = talk.events(call, None).await;
        assert_eq!((page.events.len(), page.gap, page.status), (0, false, CallStatus::Deleted));
        assert_eq!(talk.retry(&retry(call, 0)).await, Retried::Unknown);
    }
    assert_eq!(talk.store.load(&talk.slot, None).await, Ok(None), "asking brings nothing back");

    let other = talk.granted("new").await;
    assert_eq!(talk.commit(&commit(&grant)).await, Err(StoreError::LeaseLost));
    assert!(other.call.steps.is_empty() && other.history.messages.is_empty());
    assert_eq!(other.history.meta, Some(Blob::empty()));
    for call in ["done", "running", "queued"] {
        assert_eq!(talk.begin(&begin(call)).await, Begun::Deleted, "{call}: also in the next session");
        assert_eq!(talk.status(call).await, CallStatus::Deleted, "{call}");
    }
    talk.commit(&commit(&other)).await.expect("commit");
    assert_eq!(talk.history().await, ["input of new", "answer to new"]);
}

pub async fn numbers_go_on_after_a_delete(bench: Bench) {
    let (_open, talk) = bench.talk(limits());
    talk.turn("one").await;
    let old = talk.turn("two").await;
    talk.delete().await;
    let new = talk.granted("three").await;
    assert!(new.token.fence > old.token.fence);
    assert_eq!(new.session.version, 2);
    assert_ne!(new.session.epoch, old.session.epoch);
    talk.commit(&commit(&new)).await.expect("commit");
    assert_eq!(talk.load().await.head.version, 3);
    talk.delete().await;
    assert_eq!(talk.rewrite(&rewrite(Condition::Absent, &[])).await, Rewritten::Done { version: 4 });
    assert!(talk.granted("four").await.token.fence > new.token.fence);
}

pub async fn a_second_delete_keeps_the_first_ones_calls(bench: Bench) {
    let (_open, talk) = bench.talk(limits());
    talk.turn("one").await;
    talk.delete().await;
    talk.turn("two").await;
    talk.delete().await;
    for call in ["one", "two"] {
        assert_eq!(talk.begin(&begin(call)).await, Begun::Deleted, "{call}");
    }
}

async fn failed(talk: &Talk, call: &str) -> Grant {
    let grant = talk.granted(call).await;
    talk.append(&append(&grant, 0, vec![step(StepKind::Message, "\"tried\"")])).await.expect("append");
    let commit_it = Commit { ended: Ended::Failed, messages: vec![], ..commit(&grant) };
    talk.commit(&commit_it).await.expect("commit");
    grant
}

pub async fn retry_makes_the_last_failed_call_live_again(bench: Bench) {
    let (_open, talk) = bench.talk(limits());
    talk.turn("zero").await;
    let first = failed(&talk, "one").await;
    let again = retry("one", 0);
    let Retried::Granted(grant) = talk.retry(&again).await else { panic!("granted") };
    let call = &grant.call;
    assert_eq!((&call.input, &call.context, call.revision.as_str()), (&vec![], &again.context, "r3"));
    assert_eq!((call.retry, call.prior, call.steps.len()), (1, 1, 0));
    assert!(grant.token.fence > first.token.fence);
    assert_eq!(texts(&grant.history.messages), ["input of zero", "answer to zero", "input of one", "tried"]);
    assert_eq!(talk.retry(&again).await, Retried::Granted(grant.clone()), "sent again");
    assert_eq!(talk.retry(&retry("one", 0)).await, Retried::Waiting { position: 0 }, "by another");
    assert_eq!(talk.begin(&begin("one")).await, Begun::Waiting { position: 0 });
    let page = talk.events("one", None).await;
    assert_eq!((page.events.len(), page.events[0].id.fence), (1, grant.token.fence), "a log of its own");

    talk.append(&append(&grant, 0, vec![step(StepKind::Message, "\"harder\"")])).await.expect("append");
    talk.commit(&commit(&grant)).await.expect("commit");
    let CallStatus::Done(reply) = talk.status("one").await else { panic!("done") };
    assert_eq!(
        (reply.retry, texts(&reply.messages)),
        (1, vec!["tried".to_owned(), "harder".to_owned(), "answer to one".to_owned()])
    );
    assert_eq!(talk.history().await.len(), 6, "the input is there once");
    assert_eq!(talk.load().await.head.version, 3);
    assert_eq!(talk.retry(&again).await, Retried::Done(reply), "the retry it asked for has ended");
}

pub async fn retry_is_for_the_failure_that_was_seen(bench: Bench) {
    let (_open, talk) = bench.talk(limits());
    assert_eq!(talk.retry(&retry("one", 0)).await, Retried::Unknown);
    failed(&talk, "one").await;
    let Retried::Done(reply) = talk.retry(&retry("one", 1)).await else { panic!("done") };
    assert_eq!((reply.retry, reply.ended), (0, Ended::Failed));
    let Retried::Granted(grant) = talk.retry(&retry("one", 0)).await else { panic!("granted") };
    let again = Commit { ended: Ended::Failed, ..commit(&grant) };
    talk.commit(&again).await.expect("commit");
    let Retried::Granted(grant) = talk.retry(&retry("one", 1)).await else { panic!("granted") };
    assert_eq!((grant.call.retry, grant.call.prior), (2, 2));
    talk.commit(&commit(&grant)).await.expect("commit");
    assert_eq!(talk.retry(&retry("one", 2)).await, Retried::NotRetryable, "it did not fail");
}

pub async fn retry_is_refused_while_the_call_has_not_failed(bench: Bench) {
    let (_open, talk) = bench.talk(limits());
    let grant = talk.granted("one").await;
    assert_eq!(talk.retry(&retry("one", 0)).await, Retried::SessionBusy, "it runs");
    talk.suspend(&suspend(&grant)).await;
    assert_eq!(talk.retry(&retry("one", 0)).await, Retried::SessionBusy, "it waits for somebody to go on");
}

pub async fn retry_is_refused_where_the_history_went_on(bench: Bench) {
    let (_open, talk) = bench.talk(limits());
    failed(&talk, "one").await;
    let grant = talk.granted("two").await;
    assert_eq!(talk.retry(&retry("one", 0)).await, Retried::SessionBusy);
    talk.commit(&commit(&grant)).await.expect("commit");
    assert_eq!(talk.retry(&retry("one", 0)).await, Retried::NotRetryable);
    failed(&talk, "three").await;
    talk.rewrite(&rewrite(Condition::Exists, &[])).await;
    assert_eq!(talk.retry(&retry("three", 0)).await, Retried::NotRetryable);
}

pub async fn status_of_every_kind(bench: Bench) {
    let (_open, talk) = bench.talk(limits());
    assert_eq!(talk.status("one").await, CallStatus::Unknown);
    let grant = talk.granted("one").await;
    talk.waiting(&begin("two"), 1).await;
    let steps = vec![
        step(StepKind::Message, "\"m\""),
        step(StepKind::Intent, "\"i\""),
        step(StepKind::Result, "\"r\""),
    ];
    talk.append(&append(&grant, 0, steps)).await.expect("append");
    let live = |call: &str, position, messages: &[&str]| {
        CallStatus::Live(LiveCall {
            id: id(call),
            position,
            running: position == 0,
            suspended: false,
            resumes: 0,
            messages: blobs(messages),
            fence: grant.token.fence,
        })
    };
    assert_eq!(talk.status("one").await, live("one", 0, &["\"m\"", "\"r\""]));
    assert_eq!(talk.status("two").await, live("two", 1, &[]));
    talk.commit(&commit(&grant)).await.expect("commit");
    assert!(matches!(talk.status("one").await, CallStatus::Done(_)));
    let CallStatus::Live(two) = talk.status("two").await else { panic!("live") };
    assert!(two.position == 0 && !two.running && !two.suspended);
}

pub async fn live_calls_are_in_order(bench: Bench) {
    let (_open, talk) = bench.talk(limits());
    assert_eq!(talk.live().await, []);
    talk.granted("c").await;
    talk.waiting(&begin("a"), 1).await;
    talk.waiting(&begin("b"), 2).await;
    let live = talk.live().await;
    let seen: Vec<_> = live.iter().map(|call| (call.id.as_str(), call.position, call.running)).collect();
    assert_eq!(seen, [("c", 0, true), ("a", 1, false), ("b", 2, false)]);
}

pub async fn sessions_are_listed_by_page(bench: Bench) {
    let (_open, talk) = bench.talk(limits());
    let user = id("ann");
    let names = ["b", "a", "😀", "c", "d"];
    for name in names {
        Talk { slot: slot(name), ..talk.clone() }.turn("one").await;
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
    for session in ["b", "a"] {
        // Another user, and nobody at all: not hers.
        let other = holdfast_sidecar::state::Slot::new(Some("bob"), session).expect("a slot");
        Talk { slot: other, ..talk.clone() }.turn("one").await;
    }
    let anonymous = holdfast_sidecar::state::Slot::new(None, "anonymous").expect("a slot");
    Talk { slot: anonymous, ..talk.clone() }.turn("one").await;
    Talk { slot: slot("a"), ..talk.clone() }.turn("two").await;

    let all = talk.store.list(&user, 100, None).await.expect("list");
    let listed: Vec<_> = all.sessions.iter().map(|row| (row.session.as_str(), row.version)).collect();
    assert_eq!(listed, [("a", 2), ("d", 1), ("c", 1), ("😀", 1), ("b", 1)]);
    assert_eq!(all.next, None);
    for limit in 1..=6 {
        let (mut pages, mut cursor) = (Vec::new(), None);
        loop {
            let page = talk.store.list(&user, limit, cursor.as_deref()).await.expect("list");
            assert!(page.sessions.len() <= limit);
            pages.extend(page.sessions);
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        assert_eq!(pages, all.sessions, "in pages of {limit}");
    }
    Talk { slot: slot("d"), ..talk.clone() }.delete().await;
    assert_eq!(talk.store.list(&user, 100, None).await.expect("list").sessions.len(), 4);
    assert_eq!(talk.store.list(&id("nobody"), 100, None).await.expect("list").sessions, []);
}

pub async fn overdue_names_what_nobody_works_at(bench: Bench) {
    let (_open, talk) = bench.talk(limits());
    let talks: Vec<_> = (0..20)
        .map(|n| {
            let user = format!("user {n}");
            let slot = holdfast_sidecar::state::Slot::new(Some(&user), "s").expect("a slot");
            Talk { slot, ..talk.clone() }
        })
        .collect();
    for talk in &talks {
        let grant = talk.granted("one").await;
        talk.suspend(&suspend(&grant)).await;
    }
    let mut found = Vec::new();
    for bucket in 0..talk.store.buckets() {
        let all = talk.store.overdue(bucket, 100).await.expect("overdue");
        let some = talk.store.overdue(bucket, 1).await.expect("overdue");
        assert_eq!(some.len(), all.len().min(1));
        found.extend(all);
    }
    found.sort_unstable();
    let mut expected: Vec<_> = talks.iter().map(|talk| talk.slot.clone()).collect();
    expected.sort_unstable();
    assert_eq!(found, expected);
    talks[0].takeover(&claim()).await;
    assert!(!talks[0].is_overdue().await, "held");
}
