//! Who runs what, and for how long: claim, append, renew, commit, suspend.

use std::time::Duration;

use holdfast_sidecar::store::*;

use super::Bench;
use crate::support::eventually;
use crate::support::requests::*;

pub async fn a_lease_that_ran_out_is_taken_and_counted(bench: Bench) {
    let (_open, talk) = bench.talk(short_lease());
    let first = talk.granted("one").await;
    assert!(matches!(talk.claim(&claim()).await, Claimed::Held { for_ms } if for_ms > 0 && for_ms <= 40));
    let second = talk.takeover(&claim()).await;
    assert!(second.token.fence > first.token.fence);
    let counted = |grant: &Grant| (grant.call.attempts, grant.call.attempts_total, grant.call.resumes);
    assert_eq!(counted(&second), (1, 1, 1));
    assert_eq!(second.call.input, begin("one").input);

    let mine = claim();
    let third = talk.takeover(&mine).await;
    assert_eq!(counted(&third), (2, 2, 2));
    match talk.claim(&mine).await {
        Claimed::Granted(again) => assert_eq!(*again, third, "the same claim is the same grant"),
        other => panic!("{other:?}"),
    }
}

pub async fn an_expired_holder_may_go_on_until_somebody_takes_over(bench: Bench) {
    let (_open, talk) = bench.talk(short_lease());
    let grant = talk.granted("one").await;
    eventually("the lease runs out", || async { talk.is_overdue().await.then_some(()) }).await;
    talk.renew(&renew(&grant)).await.expect("nobody else took it");
    assert!(matches!(talk.claim(&claim()).await, Claimed::Held { .. }));
    eventually("the lease runs out", || async { talk.is_overdue().await.then_some(()) }).await;
    talk.commit(&commit(&grant)).await.expect("nobody else took it");
}

pub async fn a_journal_entry_forgives_attempts_but_not_the_total(bench: Bench) {
    let (_open, talk) = bench.talk(short_lease());
    talk.granted("one").await;
    talk.takeover(&claim()).await;
    let grant = talk.takeover(&claim()).await;
    assert_eq!((grant.call.attempts, grant.call.attempts_total), (2, 2));
    talk.append(&append(&grant, 0, vec![step(StepKind::Intent, "\"i\"")])).await.expect("append");
    let grant = talk.takeover(&claim()).await;
    assert_eq!((grant.call.attempts, grant.call.attempts_total), (1, 3));
}

pub async fn a_call_that_is_to_be_left_is_not_granted_and_not_counted(bench: Bench) {
    let (_open, talk) = bench.talk(short_lease());
    talk.granted("one").await;
    talk.takeover(&claim()).await;
    let careful = Claim { leave: 2..3, ..claim() };
    let left = |claimed| matches!(claimed, Claimed::Left).then_some(());
    eventually("the lease runs out", || async { left(talk.claim(&careful).await) }).await;
    talk.waiting(&Begin { claim: Claim { leave: 2..3, ..claim() }, ..begin("two") }, 1).await;
    assert!(talk.is_overdue().await, "it waits for somebody who takes it");
    let grant = talk.takeover(&Claim { leave: 3..4, ..claim() }).await;
    assert_eq!((grant.call.attempts, grant.call.attempts_total), (2, 2));
    assert!(matches!(talk.claim(&claim()).await, Claimed::Held { .. }), "now it is taken");
}

pub async fn events_alone_forgive_nothing(bench: Bench) {
    let (_open, talk) = bench.talk(short_lease());
    talk.granted("one").await;
    let grant = talk.takeover(&claim()).await;
    let events = vec![event(1, EventName::Resumed, "{}")];
    talk.renew(&Renew { events: events.clone(), ..renew(&grant) }).await.expect("renew");
    talk.append(&Append { events, ..append(&grant, 0, vec![]) }).await.expect("append");
    assert_eq!(talk.takeover(&claim()).await.call.attempts, 2);
}

pub async fn suspend_counts_no_attempt(bench: Bench) {
    let (_open, talk) = bench.talk(limits());
    let first = talk.granted("one").await;
    talk.append(&append(&first, 0, vec![step(StepKind::Intent, "\"i\"")])).await.expect("append");
    talk.suspend(&suspend(&first)).await;
    assert!(talk.is_overdue().await, "it can be taken at once");
    let CallStatus::Live(live) = talk.status("one").await else { panic!("live") };
    assert!(live.suspended && !live.running);

    let second = talk.takeover(&claim()).await;
    assert_eq!((second.call.attempts, second.call.attempts_total, second.call.resumes), (0, 0, 1));
    assert_eq!(second.call.steps, [step(StepKind::Intent, "\"i\"")]);
    assert!(second.session.interrupted && second.call.ran == 5);
    talk.commit(&commit(&second)).await.expect("commit");
    assert!(!talk.load().await.head.interrupted, "cleared by the commit");
}

pub async fn suspend_twice_is_fine_and_by_a_stranger_nothing(bench: Bench) {
    let (_open, talk) = bench.talk(limits());
    let first = talk.granted("one").await;
    let stranger = Grant { token: Token { nonce: Nonce::random(), ..first.token }, ..first.clone() };
    talk.suspend(&suspend(&stranger)).await;
    talk.renew(&renew(&first)).await.expect("still held");
    talk.suspend(&suspend(&first)).await;
    talk.suspend(&suspend(&first)).await;
    let second = talk.takeover(&claim()).await;
    talk.suspend(&suspend(&first)).await;
    talk.renew(&renew(&second)).await.expect("a late suspend of the first takes nothing from the second");
}

pub async fn the_holder_goes_on_with_the_next_call(bench: Bench) {
    let (_open, talk) = bench.talk(limits());
    let grant = talk.granted("one").await;
    talk.append(&append(&grant, 0, vec![step(StepKind::Message, "\"m\"")])).await.expect("append");
    let two = Begin { stream: true, ..begin("two") };
    talk.waiting(&two, 1).await;
    let first = Commit { go_on: true, ..commit(&grant) };
    let next = talk.commit(&first).await.expect("commit").expect("the next call");
    assert_eq!((&next.id, &next.input, &next.context), (&two.call, &two.input, &two.context));
    assert!(next.stream && next.steps.is_empty());
    assert_eq!(talk.commit(&first).await.expect("again"), Some(next.clone()));

    let last = Commit { go_on: true, ..commit_of(&grant, 1, &next.id) };
    assert_eq!(talk.commit(&last).await, Ok(None));
    assert_eq!(talk.commit(&last).await, Ok(None));
    assert_eq!(talk.history().await, ["input of one", "m", "answer to one", "input of two", "answer to two"]);
    assert_eq!(talk.load().await.head.version, 2);
    assert_eq!(talk.claim(&claim()).await, Claimed::NothingToDo);
}

pub async fn without_going_on_the_next_call_is_orphaned(bench: Bench) {
    let (_open, talk) = bench.talk(limits());
    let grant = talk.granted("one").await;
    talk.waiting(&begin("two"), 1).await;
    assert_eq!(talk.commit(&commit(&grant)).await, Ok(None));
    assert!(talk.is_overdue().await);
    let next = talk.takeover(&claim()).await;
    assert_eq!((next.call.id, next.call.attempts, next.call.resumes), (id("two"), 0, 0));
    assert!(next.token.fence > grant.token.fence);
}

pub async fn a_late_append_of_the_last_call_does_not_reach_the_next(bench: Bench) {
    let (_open, talk) = bench.talk(limits());
    let grant = talk.granted("one").await;
    talk.waiting(&begin("two"), 1).await;
    talk.commit(&Commit { go_on: true, ..commit(&grant) }).await.expect("commit");
    let late = append(&grant, 0, vec![step(StepKind::Intent, "\"pay\"")]);
    assert_eq!(talk.append(&late).await, Err(StoreError::LeaseLost));
    let late = Renew { events: vec![event(9, EventName::Delta, "{}")], ..renew(&grant) };
    assert_eq!(talk.renew(&late).await, Err(StoreError::LeaseLost));
    assert!(talk.live().await[0].messages.is_empty());
    assert_eq!(talk.events("two", None).await.events.len(), 1);
}

pub async fn the_same_append_again_is_one_entry(bench: Bench) {
    let (_open, talk) = bench.talk(limits());
    let first = begin("one");
    let grant = talk.granted_by(&first).await;
    let steps = vec![step(StepKind::Message, "\"a\""), step(StepKind::Intent, "\"b\"")];
    let append_it = append(&grant, 0, steps.clone());
    for _ in 0..3 {
        talk.append(&append_it).await.expect("append");
    }
    talk.append(&append(&grant, 2, vec![step(StepKind::Result, "\"c\"")])).await.expect("append");
    let again = talk.granted_by(&first).await;
    assert_eq!(again.call.steps, [&steps[..], &[step(StepKind::Result, "\"c\"")]].concat());
}

pub async fn an_append_at_another_place_is_refused(bench: Bench) {
    let (_open, talk) = bench.talk(limits());
    let grant = talk.granted("one").await;
    let a = vec![step(StepKind::Message, "\"a\"")];
    let b = vec![step(StepKind::Message, "\"b\"")];
    talk.append(&append(&grant, 0, a.clone())).await.expect("append");
    for wrong in [append(&grant, 0, b), append(&grant, 2, a), append(&grant, 0, vec![])] {
        assert!(matches!(talk.append(&wrong).await, Err(StoreError::Corrupt(_))), "{wrong:?}");
    }
    assert_eq!(talk.live().await[0].messages, blobs(&["\"a\""]));
}

pub async fn the_same_commit_again_is_one_turn(bench: Bench) {
    let (_open, talk) = bench.talk(limits());
    let grant = talk.granted("one").await;
    let commit_it = commit(&grant);
    for _ in 0..3 {
        assert_eq!(talk.commit(&commit_it).await, Ok(None));
    }
    talk.turn("two").await;
    assert_eq!(talk.commit(&commit_it).await, Ok(None), "even a turn later");
    assert_eq!(talk.history().await.len(), 4);
    assert_eq!(talk.load().await.head.version, 2);
}

pub async fn a_commit_again_after_another_took_over_has_no_next(bench: Bench) {
    let (_open, talk) = bench.talk(short_lease());
    let grant = talk.granted("one").await;
    talk.waiting(&begin("two"), 1).await;
    let commit_it = Commit { go_on: true, ..commit(&grant) };
    assert!(talk.commit(&commit_it).await.expect("commit").is_some());
    let other = talk.takeover(&claim()).await;
    assert_eq!(other.call.id, id("two"));
    assert_eq!(talk.commit(&commit_it).await, Ok(None));
}

pub async fn a_commit_of_another_version_is_refused(bench: Bench) {
    let (_open, talk) = bench.talk(limits());
    talk.turn("zero").await;
    let grant = talk.granted("one").await;
    for wrong in [commit_of(&grant, 0, &grant.call.id), commit_of(&grant, 2, &grant.call.id)] {
        assert_eq!(talk.commit(&wrong).await, Err(StoreError::LeaseLost));
    }
    assert_eq!(talk.commit(&commit_of(&grant, 1, &id("other"))).await, Err(StoreError::LeaseLost));
    assert_eq!(talk.history().await.len(), 2);
    talk.commit(&commit(&grant)).await.expect("the right one");
}

pub async fn nothing_of_a_fenced_off_holder_is_written(bench: Bench) {
    let (_open, talk) = bench.talk(short_lease());
    let first = talk.granted("one").await;
    let second = talk.takeover(&claim()).await;
    let events = vec![event(1, EventName::Delta, "\"late\"")];
    let late = Append { events: events.clone(), ..append(&first, 0, vec![step(StepKind::Message, "1")]) };
    assert_eq!(talk.append(&late).await, Err(StoreError::LeaseLost));
    let late = Renew { events, ..renew(&first) };
    assert_eq!(talk.renew(&late).await, Err(StoreError::LeaseLost));
    assert_eq!(talk.commit(&commit(&first)).await, Err(StoreError::LeaseLost));
    talk.suspend(&suspend(&first)).await;
    assert_eq!(talk.events("one", None).await.events.len(), 1);
    assert_eq!(talk.history().await, [""; 0]);
    talk.commit(&commit(&second)).await.expect("the one who has it");
    assert_eq!(talk.history().await, ["input of one", "answer to one"]);
}

pub async fn renew_moves_the_lease_only_when_a_third_is_gone(bench: Bench) {
    let lease = Duration::from_millis(300);
    let (_open, talk) = bench.talk(Limits { lease, ..limits() });
    let grant = talk.granted("one").await;
    let left = || async {
        match talk.claim(&claim()).await {
            Claimed::Held { for_ms } => for_ms,
            other => panic!("{other:?}"),
        }
    };
    tokio::time::sleep(Duration::from_millis(30)).await;
    talk.renew(&renew(&grant)).await.expect("renew");
    assert!(left().await <= 270, "too early to move it");
    tokio::time::sleep(Duration::from_millis(120)).await;
    talk.renew(&renew(&grant)).await.expect("renew");
    assert!(left().await > 200);
}

pub async fn claiming_what_is_idle_does_nothing(bench: Bench) {
    let (_open, talk) = bench.talk(limits());
    assert_eq!(talk.claim(&claim()).await, Claimed::NothingToDo);
    assert_eq!(talk.store.load(&talk.slot, None).await, Ok(None), "no session is made by a claim");
    talk.turn("one").await;
    assert_eq!(talk.claim(&claim()).await, Claimed::NothingToDo);
}

pub async fn the_time_a_call_has_run_never_goes_back(bench: Bench) {
    let (_open, talk) = bench.talk(limits());
    let first = begin("one");
    let grant = talk.granted_by(&first).await;
    for ran in [50, 20, 70, 60] {
        talk.renew(&Renew { ran, ..renew(&grant) }).await.expect("renew");
    }
    assert_eq!(talk.granted_by(&first).await.call.ran, 70);
    talk.append(&Append { ran: 90, ..append(&grant, 0, vec![]) }).await.expect("append");
    assert_eq!(talk.granted_by(&first).await.call.ran, 90);
}

pub async fn a_parked_call_waits_for_somebody(bench: Bench) {
    let (_open, talk) = bench.talk(limits());
    let park = |grant: &Grant| Suspend { park: true, ..suspend(grant) };
    talk.suspend(&park(&talk.granted("one").await)).await;
    assert!(!talk.is_overdue().await);
    talk.interrupt("one", "{}").await;
    assert!(talk.is_overdue().await, "a mark wakes it");
    let grant = talk.takeover(&claim()).await;
    talk.suspend(&park(&grant)).await;
    assert!(talk.is_overdue().await, "marked: not parked again");
    talk.commit(&commit(&talk.takeover(&claim()).await)).await.expect("commit");

    talk.suspend(&park(&talk.granted("two").await)).await;
    assert!(!talk.is_overdue().await);
    let grant = talk.granted("three").await;
    assert_eq!(grant.call.id, id("two"), "a later call finishes it first");
    talk.suspend(&suspend(&grant)).await;
    assert!(talk.is_overdue().await);
}

pub async fn a_call_with_company_is_not_parked(bench: Bench) {
    let (_open, talk) = bench.talk(limits());
    let grant = talk.granted("one").await;
    talk.waiting(&begin("two"), 1).await;
    talk.suspend(&Suspend { park: true, ..suspend(&grant) }).await;
    assert!(talk.is_overdue().await);
}

pub async fn announcements_tell_those_who_wait(bench: Bench) {
    let (_open, talk) = bench.talk(limits());
    let mut heard = talk.store.announcements();
    let warm = Talk { slot: slot("warm"), ..talk.clone() };
    // A subscription takes a moment: begin only when something was heard.
    let grant = warm.granted("one").await;
    eventually("the first announcement", || async {
        warm.interrupt("one", "{}").await;
        tokio::time::sleep(Duration::from_millis(5)).await;
        (!heard.is_empty()).then_some(())
    })
    .await;
    let marks = warm.renew(&renew(&grant)).await.expect("renew").mark;
    warm.commit(&Commit { marks_seen: seen(marks.as_ref()), ..commit(&grant) }).await.expect("commit");

    let mut next = async |slot: &holdfast_sidecar::state::Slot| loop {
        let announced = tokio::time::timeout(Duration::from_secs(5), heard.recv()).await;
        let announced = announced.expect("an announcement in time").expect("an announcement");
        if announced.slot == *slot {
            return announced.orphaned;
        }
    };
    talk.turn("quiet").await;
    let grant = talk.granted("one").await;
    talk.waiting(&begin("two"), 1).await;
    let events = vec![event(1, EventName::Started, "{}")];
    talk.renew(&Renew { events, ..renew(&grant) }).await.expect("renew");
    assert!(!next(&talk.slot).await, "somebody waits: events are announced");
    talk.commit(&commit(&grant)).await.expect("commit");
    assert!(next(&talk.slot).await, "a call was left to whoever wants it");
    let grant = talk.takeover(&claim()).await;
    talk.suspend(&suspend(&grant)).await;
    assert!(next(&talk.slot).await);
    talk.interrupt("two", "{}").await;
    assert!(next(&talk.slot).await);
    talk.delete().await;
    assert!(!next(&talk.slot).await);
}
