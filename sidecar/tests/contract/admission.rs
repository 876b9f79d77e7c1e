//! Who comes in: begin.

use holdfast_sidecar::store::*;

use super::Bench;
use crate::support::requests::*;

pub async fn a_first_call_creates_the_session_and_takes_the_lease(bench: Bench) {
    let (_open, talk) = bench.talk(limits());
    assert_eq!(talk.store.load(&talk.slot, None).await, Ok(None));
    let first = begin("one");
    let grant = talk.granted_by(&first).await;

    assert_eq!(grant.token.nonce, first.claim.nonce);
    assert_eq!(grant.session.epoch, first.claim.epoch);
    assert_eq!((grant.session.version, grant.session.turns), (0, 0));
    assert!(grant.session.created > 0 && !grant.session.interrupted);
    assert_eq!(grant.token.fence, grant.session.created, "the fence starts at the store's clock");
    assert_eq!(grant.history, Delta { from: 0, messages: vec![], meta: Some(Blob::empty()) });
    assert_eq!(
        grant.call,
        HeadCall {
            id: id("one"),
            input: first.input,
            context: first.context,
            revision: first.revision,
            mark: None,
            stream: false,
            steps: vec![],
            ran: 0,
            resumes: 0,
            retry: 0,
            prior: 0,
            attempts: 0,
            attempts_total: 0,
        }
    );
}

pub async fn the_same_begin_again_is_the_same_grant(bench: Bench) {
    let (_open, talk) = bench.talk(limits());
    let first = begin("one");
    let grant = talk.granted_by(&first).await;
    assert_eq!(talk.granted_by(&first).await, grant);
    assert_eq!(talk.events("one", None).await.events.len(), 1, "queued once");

    talk.append(&append(&grant, 0, vec![step(StepKind::Message, "\"m\"")])).await.expect("append");
    let again = talk.granted_by(&first).await;
    assert_eq!(again.token, grant.token);
    assert_eq!(again.call.steps, [step(StepKind::Message, "\"m\"")]);
    assert_eq!((again.call.attempts, again.call.resumes), (0, 0));
}

pub async fn another_call_waits_behind_the_running_one(bench: Bench) {
    let (_open, talk) = bench.talk(limits());
    talk.granted("one").await;
    talk.waiting(&begin("two"), 1).await;
    talk.waiting(&begin("three"), 2).await;
    let queued = &talk.events("two", None).await.events[0];
    assert_eq!((queued.name, &*queued.data), (EventName::Queued, &b"{\"call\":1,\"position\":1}"[..]));
}

pub async fn a_waiting_call_joined_again_keeps_its_place(bench: Bench) {
    let (_open, talk) = bench.talk(limits());
    talk.granted("one").await;
    let two = begin("two");
    for _ in 0..3 {
        talk.waiting(&two, 1).await;
    }
    talk.waiting(&begin("two"), 1).await;
    assert_eq!(talk.live().await.len(), 2);
}

pub async fn a_finished_call_answers_its_reply(bench: Bench) {
    let (_open, talk) = bench.talk(limits());
    talk.turn("one").await;
    let before = talk.load().await;
    for _ in 0..2 {
        assert_eq!(
            talk.begin(&begin("one")).await,
            Begun::Done(Reply {
                ended: Ended::Completed,
                document: blob("{\"ok\":true}"),
                messages: blobs(&["\"answer to one\""]),
                retry: 0,
            })
        );
    }
    assert_eq!(talk.load().await, before);
}

pub async fn the_same_id_with_other_messages_is_a_conflict(bench: Bench) {
    let (_open, talk) = bench.talk(limits());
    let other = Begin { digest: "another".to_owned(), ..begin("one") };
    let grant = talk.granted("one").await;
    assert_eq!(talk.begin(&other).await, Begun::Conflict, "live");
    talk.commit(&commit(&grant)).await.expect("commit");
    assert_eq!(talk.begin(&other).await, Begun::Conflict, "finished");
    assert_eq!(talk.history().await, ["input of one", "answer to one"]);
}

pub async fn a_full_queue_admits_nobody_but_those_in_it(bench: Bench) {
    let (_open, talk) = bench.talk(Limits { queue_limit: 1, ..limits() });
    let grant = talk.granted("one").await;
    talk.waiting(&begin("two"), 1).await;
    assert_eq!(talk.begin(&begin("three")).await, Begun::Full);
    assert_eq!(talk.status("three").await, CallStatus::Unknown);
    talk.waiting(&begin("two"), 1).await;
    talk.commit(&commit(&grant)).await.expect("commit");
    assert!(matches!(talk.begin(&begin("one")).await, Begun::Done(_)), "a finished one is never full");
}

pub async fn reject_admits_nothing_while_a_call_runs(bench: Bench) {
    let (_open, talk) = bench.talk(limits());
    let reject = |call| Begin { on_busy: OnBusy::Reject, ..begin(call) };
    let grant = talk.granted_by(&reject("one")).await;
    assert_eq!(talk.begin(&reject("two")).await, Begun::SessionBusy);
    assert_eq!(talk.status("two").await, CallStatus::Unknown);
    assert_eq!(talk.live().await.len(), 1);
    talk.commit(&commit(&grant)).await.expect("commit");
    talk.granted_by(&reject("two")).await;
}

pub async fn reject_waits_for_no_lease_that_ran_out(bench: Bench) {
    let (_open, talk) = bench.talk(short_lease());
    talk.granted("one").await;
    let two = Begin { on_busy: OnBusy::Reject, ..begin("two") };
    let grant = crate::support::eventually("the lease runs out", || async {
        match talk.begin(&two).await {
            Begun::Granted(grant) => Some(*grant),
            Begun::SessionBusy => None,
            other => panic!("{other:?}"),
        }
    })
    .await;
    assert_eq!(grant.call.id, id("one"), "the earlier call is finished first");
    assert_eq!((grant.call.attempts, grant.call.resumes), (1, 1));
}

pub async fn interrupt_marks_every_call_before_it(bench: Bench) {
    let (_open, talk) = bench.talk(limits());
    let grant = talk.granted("one").await;
    talk.waiting(&begin("two"), 1).await;
    talk.interrupt("one", "{\"by\":\"ann\"}").await;
    talk.waiting(&Begin { on_busy: OnBusy::Interrupt, ..begin("three") }, 2).await;
    let pulse = talk.renew(&renew(&grant)).await.expect("renew");
    assert_eq!(pulse.mark, Some(blob("[{\"by\":\"ann\"},{}]")));

    let next = Commit { go_on: true, marks_seen: seen(pulse.mark.as_ref()), ..commit(&grant) };
    let two = talk.commit(&next).await.expect("commit").expect("two");
    assert_eq!(two.mark, Some(blob("[{}]")));
    let marks_seen = seen(two.mark.as_ref());
    let next = Commit { go_on: true, marks_seen, ..commit_of(&grant, 1, &two.id) };
    let three = talk.commit(&next).await.expect("commit").expect("three");
    assert_eq!(three.mark, None);
}

pub async fn interrupt_over_an_expired_lease_keeps_the_mark(bench: Bench) {
    let (_open, talk) = bench.talk(short_lease());
    talk.granted("one").await;
    crate::support::eventually("the lease runs out", || async { talk.is_overdue().await.then_some(()) })
        .await;
    let grant = talk.granted_by(&Begin { on_busy: OnBusy::Interrupt, ..begin("two") }).await;
    assert_eq!(grant.call.id, id("one"));
    assert_eq!((grant.call.attempts, grant.call.mark), (1, Some(blob("[{}]"))));
    let pulse = talk.renew(&renew(&Grant { call: HeadCall { mark: None, ..grant.call }, ..grant })).await;
    assert_eq!(pulse.expect("renew").mark, Some(blob("[{}]")), "it is kept, not only answered");
}

pub async fn a_stream_asked_for_later_is_seen_by_the_holder(bench: Bench) {
    let (_open, talk) = bench.talk(limits());
    let grant = talk.granted("one").await;
    assert!(!talk.renew(&renew(&grant)).await.expect("renew").stream);
    talk.waiting(&Begin { stream: true, ..begin("one") }, 0).await;
    assert!(talk.renew(&renew(&grant)).await.expect("renew").stream);
}

pub async fn a_call_with_many_messages_keeps_their_order(bench: Bench) {
    let (_open, talk) = bench.talk(limits());
    let texts: Vec<_> = (0..2500).map(|i| format!("\"{i}\"")).collect();
    let input: Vec<_> = texts.iter().map(|text| blob(text)).collect();
    let many = Begin { input: input.clone(), ..begin("one") };
    assert_eq!(talk.granted_by(&many).await.call.input, input);
    let grant = talk.granted_by(&many).await;
    assert_eq!(grant.call.input, input, "as stored");
    talk.waiting(&begin("two"), 1).await;
    talk.commit(&commit(&grant)).await.expect("commit");
    assert_eq!(talk.load().await.messages[..2500], input);
    let next = talk.takeover(&claim()).await;
    assert_eq!((next.history.messages.len(), next.call.id), (2501, id("two")));
}
