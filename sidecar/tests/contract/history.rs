//! What is in a history, and what of it is sent.

use holdfast_sidecar::store::*;

use super::Bench;
use crate::support::requests::*;

pub async fn a_turn_is_input_journal_and_answer(bench: Bench) {
    let (_open, talk) = bench.talk(limits());
    let grant = talk.granted("one").await;
    let steps = vec![
        step(StepKind::Message, "\"call a tool\""),
        step(StepKind::Intent, "\"about to\""),
        step(StepKind::Result, "\"it said\""),
    ];
    talk.append(&append(&grant, 0, steps)).await.expect("append");
    talk.commit(&commit(&grant)).await.expect("commit");
    let loaded = talk.load().await;
    assert_eq!(texts(&loaded.messages), ["input of one", "call a tool", "it said", "answer to one"]);
    assert_eq!((loaded.head.version, loaded.head.turns), (1, 1));
    assert_eq!(loaded.meta, blob("{\"after\":1}"));
    let CallStatus::Done(reply) = talk.status("one").await else { panic!("done") };
    assert_eq!(texts(&reply.messages), ["call a tool", "it said", "answer to one"]);
    let next = talk.granted("two").await;
    assert!(next.call.steps.is_empty(), "the journal is gone");
    assert_eq!(next.history.messages, loaded.messages);
    assert_eq!(next.history.meta, Some(loaded.meta));
}

pub async fn a_warm_cache_is_sent_nothing_and_an_older_one_the_rest(bench: Bench) {
    let (_open, talk) = bench.talk(limits());
    talk.turn("one").await;
    let old = talk.load().await;
    let with = |call, loaded: &Loaded| Begin {
        claim: Claim { known: Some(known(loaded)), ..claim() },
        ..begin(call)
    };
    let grant = talk.granted_by(&with("two", &old)).await;
    assert_eq!(grant.history, Delta { from: 2, messages: vec![], meta: None });
    talk.commit(&commit(&grant)).await.expect("commit");

    let grant = talk.granted_by(&with("three", &old)).await;
    assert_eq!(
        (grant.history.from, texts(&grant.history.messages)),
        (2, vec!["input of two".to_owned(), "answer to two".to_owned()])
    );
    assert_eq!(grant.history.meta, Some(blob("{\"after\":2}")));
    talk.suspend(&suspend(&grant)).await;

    let full = talk.load().await;
    let warm = Claim { known: Some(known(&full)), ..claim() };
    let grant = talk.takeover(&warm).await;
    assert_eq!(grant.history, Delta { from: 4, messages: vec![], meta: None }, "a claim too");

    let empty = Known { len: 0, tail: Tail::default(), ..known(&full) };
    talk.suspend(&suspend(&grant)).await;
    let grant = talk.takeover(&Claim { known: Some(empty), ..claim() }).await;
    assert_eq!((grant.history.from, grant.history.messages.len(), grant.history.meta), (0, 4, None));
}

pub async fn a_cache_of_another_history_is_worth_nothing(bench: Bench) {
    let (_open, talk) = bench.talk(limits());
    talk.turn("one").await;
    let loaded = talk.load().await;
    let good = known(&loaded);
    let mut grant = talk.granted("two").await;
    let wrong = [
        Known { epoch: Epoch::random(), ..good },
        Known { version: 2, ..good },
        Known { len: 1, ..good },
        Known { len: 3, ..good },
        Known { len: usize::MAX / 4096, ..good },
        Known { tail: Tail::of(Some(b"other")), ..good },
        Known { len: 0, ..good },
    ];
    for known in wrong {
        talk.suspend(&suspend(&grant)).await;
        grant = talk.takeover(&Claim { known: Some(known), ..claim() }).await;
        assert_eq!(grant.history.from, 0, "{known:?}");
        assert_eq!(grant.history.messages, loaded.messages);
        assert!(grant.history.meta.is_some());
    }
}

pub async fn a_recreated_session_is_never_mistaken_for_the_old_one(bench: Bench) {
    let (_open, talk) = bench.talk(limits());
    talk.turn("one").await;
    let old = talk.load().await;
    talk.delete().await;
    // The same number of messages, even the same bytes: only the epoch tells them apart.
    let same = Rewrite { messages: old.messages.clone(), ..rewrite(Condition::Absent, &[]) };
    assert_eq!(talk.rewrite(&same).await, Rewritten::Done { version: 2 });
    let stale = Known { version: 2, ..known(&old) };
    let grant =
        talk.granted_by(&Begin { claim: Claim { known: Some(stale), ..claim() }, ..begin("two") }).await;
    assert_eq!((grant.history.from, grant.history.messages.len()), (0, 2));
    assert_eq!(grant.history.meta, Some(blob("{\"rewritten\":true}")));
}

pub async fn load_bounds_the_messages(bench: Bench) {
    let (_open, talk) = bench.talk(limits());
    talk.turn("one").await;
    talk.turn("two").await;
    for (last, expected) in [(None, 4), (Some(0), 0), (Some(1), 1), (Some(3), 3), (Some(4), 4), (Some(99), 4)]
    {
        let loaded = talk.store.load(&talk.slot, last).await.expect("load").expect("a session");
        let all = talk.load().await;
        assert_eq!(loaded.messages, all.messages[4 - expected..], "{last:?}");
        assert_eq!((loaded.head, loaded.meta), (all.head, all.meta));
    }
}

pub async fn meta_stays_where_a_commit_has_none(bench: Bench) {
    let (_open, talk) = bench.talk(limits());
    talk.turn("one").await;
    let grant = talk.granted("two").await;
    let commit_it = Commit { meta: None, turns: 9, revision: "r9".to_owned(), ..commit(&grant) };
    talk.commit(&commit_it).await.expect("commit");
    let loaded = talk.load().await;
    assert_eq!(loaded.meta, blob("{\"after\":1}"));
    assert_eq!((loaded.head.turns, loaded.head.revision.as_str()), (9, "r9"));
}

pub async fn a_thousand_messages_come_back_in_order(bench: Bench) {
    let (_open, talk) = bench.talk(limits());
    let many: Vec<_> = (0..3456).map(|i| format!("\"{i}\"")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert_eq!(talk.rewrite(&rewrite(Condition::Absent, &many)).await, Rewritten::Done { version: 1 });
    assert_eq!(talk.load().await.messages, blobs(&many));
    let grant = talk.granted("one").await;
    assert_eq!(grant.history.messages, blobs(&many));
    let long = Commit { messages: blobs(&many), ..commit(&grant) };
    talk.commit(&long).await.expect("commit");
    let loaded = talk.load().await;
    assert_eq!(loaded.messages.len(), 2 * many.len() + 1);
    assert_eq!(loaded.messages[many.len() + 1..], blobs(&many));
    let CallStatus::Done(reply) = talk.status("one").await else { panic!("done") };
    assert_eq!(reply.messages, blobs(&many));
}

pub async fn a_thousand_calls_are_remembered(bench: Bench) {
    // Replies live so short that only the count keeps the ids.
    let brief = Limits { reply_ttl: std::time::Duration::from_millis(1), ..limits() };
    let (_open, talk) = bench.talk(brief);
    let call = |n: usize| format!("{n}");
    let mut grant = talk.granted(&call(0)).await;
    for n in 1..=REMEMBERED_CALLS + 1 {
        talk.commit(&Commit { messages: vec![], meta: None, ..commit(&grant) }).await.expect("commit");
        grant = talk.granted_by(&Begin { input: vec![], ..begin(&call(n)) }).await;
    }
    tokio::time::sleep(std::time::Duration::from_millis(3)).await;
    talk.commit(&commit(&grant)).await.expect("commit");
    assert_eq!(talk.status(&call(1)).await, CallStatus::Unknown, "the oldest of 1 002 are forgotten");
    assert_eq!(talk.begin(&begin(&call(2))).await, Begun::Expired);
    assert_eq!(talk.status(&call(REMEMBERED_CALLS)).await, CallStatus::Expired);
    assert!(matches!(talk.begin(&begin(&call(1))).await, Begun::Granted(_)), "forgotten ids are new ones");
}
