//! Keys that hold something else than they should.

use holdfast_sidecar::store::*;
use holdfast_tests::redis::Options;

use super::Broken;
use crate::support::requests::*;

const WRITES: [&str; 8] = ["begin", "claim", "append", "renew", "interrupt", "suspend", "commit", "delete"];

async fn running(broken: &Broken) -> Grant {
    broken.talk.turn("zero").await;
    let grant = broken.talk.granted("one").await;
    broken.talk.waiting(&begin("two"), 1).await;
    grant
}

#[tokio::test]
async fn a_key_of_another_type_is_named_and_nothing_is_written() {
    // The key, and the operations that need it.
    let cases = [
        (":head", &WRITES.join(" ")[..]),
        (":ctx", "commit"),
        (":calls", "begin append renew interrupt suspend commit"),
        (":wal", "append commit"),
        (":done", "commit delete"),
        (":digests", "begin commit"),
        (":due", "begin append renew interrupt suspend commit delete"),
        (":sessions:", "begin append renew interrupt suspend commit delete"),
        (":events:b25l", "append renew suspend commit"),
        (":reply:b25l", "commit"),
    ];
    for (end, expected) in cases {
        for operation in expected.split(' ') {
            let broken = Broken::new(Options::default().volatile());
            let grant = running(&broken).await;
            let key = match end {
                ":wal" | ":reply:b25l" => broken.key(":head").replace(":head", end),
                ":sessions:" => broken.key(":sessions:*"),
                _ => broken.key(end),
            };
            assert!(!broken.command(&["DEL", &key]).starts_with('-'));
            let wrong = if end == ":head" || end == ":calls" { "LPUSH" } else { "SADD" };
            assert_eq!(broken.command(&[wrong, &key, "x"]), ":1");
            let before = broken.digest();
            let answer = one_of(&broken.talk, &grant, operation).await;
            match answer {
                Err(StoreError::Corrupt(text)) => {
                    assert!(text.contains(&key), "{operation} with a wrong {end}: {text}");
                }
                other => panic!("{operation} with a wrong {end}: {other:?}"),
            }
            assert_eq!(broken.digest(), before, "{operation} with a wrong {end} wrote something");
        }
    }
}

/// One operation on a session that has a call running and another waiting.
async fn one_of(talk: &Talk, grant: &Grant, operation: &str) -> Result<String, StoreError> {
    let events = vec![event(1, EventName::Started, "{}")];
    let (store, slot) = (&talk.store, &talk.slot);
    match operation {
        "begin" => {
            let interrupting = Begin { on_busy: OnBusy::Interrupt, ..begin("three") };
            store.begin(slot, &interrupting).await.map(|answer| format!("{answer:?}"))
        }
        "claim" => store.claim(slot, &claim()).await.map(|answer| format!("{answer:?}")),
        "append" => {
            let steps = vec![step(StepKind::Message, "\"m\"")];
            let append_it = Append { events, ..append(grant, 0, steps) };
            store.append(slot, &append_it).await.map(|answer| format!("{answer:?}"))
        }
        "renew" => {
            let renew_it = Renew { events, ..renew(grant) };
            store.renew(slot, &renew_it).await.map(|answer| format!("{answer:?}"))
        }
        "interrupt" => {
            store.interrupt(slot, &id("one"), &blob("{}")).await.map(|answer| format!("{answer:?}"))
        }
        "suspend" => {
            let suspend_it = Suspend { events, ..suspend(grant) };
            store.suspend(slot, &suspend_it).await.map(|()| String::new())
        }
        "commit" => {
            let commit_it = Commit { events, ..commit(grant) };
            store.commit(slot, &commit_it).await.map(|answer| format!("{answer:?}"))
        }
        "delete" => store.delete(slot).await.map(|answer| answer.to_string()),
        other => panic!("no operation {other}"),
    }
}

#[tokio::test]
async fn garbage_in_the_head_is_never_a_fresh_session() {
    let broken = Broken::new(Options::default().volatile());
    let grant = running(&broken).await;
    let head = broken.key(":head");
    let fields = ["created", "ver", "fence", "until", "turns", "expires", "kept", "len", "queue"];
    for field in fields {
        let good = broken.command(&["HGET", &head, field]);
        for bad in ["garbage", "-1", "1e5", "0x10", " 1"] {
            broken.command(&["HSET", &head, field, bad]);
            let before = broken.digest();
            for operation in WRITES {
                let answer = one_of(&broken.talk, &grant, operation).await;
                let corrupt = matches!(&answer, Err(StoreError::Corrupt(text)) if text.contains(&head));
                assert!(corrupt, "{operation} with {field} = {bad:?}: {answer:?}");
            }
            let loaded = broken.talk.store.load(&broken.talk.slot, None).await;
            assert!(matches!(loaded, Err(StoreError::Corrupt(_))), "{field} = {bad:?}: {loaded:?}");
            assert_eq!(broken.digest(), before, "{field} = {bad:?}");
        }
        broken.command(&["HSET", &head, field, &good]);
    }
    broken.command(&["HDEL", &head, "created"]);
    let answer = broken.talk.store.begin(&broken.talk.slot, &begin("four")).await;
    assert!(matches!(answer, Err(StoreError::Corrupt(_))), "{answer:?}");
}

#[tokio::test]
async fn a_history_that_lost_a_part_is_never_a_shorter_one() {
    for damage in [&["LPOP"][..], &["DEL"], &["RPUSH", "more"]] {
        let broken = Broken::new(Options::default().volatile());
        let grant = running(&broken).await;
        let key = broken.key(":ctx");
        broken.command(&[&[damage[0], &key], &damage[1..]].concat());
        let before = broken.digest();
        let talk = &broken.talk;
        let named = |error: &StoreError| matches!(error, StoreError::Corrupt(text) if text.contains(&key));
        let loaded = talk.store.load(&talk.slot, None).await.expect_err("damaged");
        let committed = talk.commit(&commit(&grant)).await.expect_err("damaged");
        assert!(named(&loaded) && named(&committed), "{loaded} {committed}");
        assert_eq!(broken.digest(), before);
        talk.suspend(&suspend(&grant)).await;
        let before = broken.digest();
        let claimed = talk.store.claim(&talk.slot, &claim()).await.expect_err("damaged");
        let begun = talk.store.begin(&talk.slot, &begin("one")).await.expect_err("damaged");
        assert!(named(&claimed) && named(&begun), "{claimed} {begun}");
        assert_eq!(broken.digest(), before);
    }
}

#[tokio::test]
async fn calls_and_replies_that_cannot_be_read_are_damage() {
    let broken = Broken::new(Options::default().volatile());
    let grant = running(&broken).await;
    let talk = &broken.talk;
    let zero = broken.key(":reply:emVybw");
    broken.command(&["LSET", &zero, "0", "nonsense"]);
    assert!(matches!(talk.store.begin(&talk.slot, &begin("zero")).await, Err(StoreError::Corrupt(_))));

    let calls = broken.key(":calls");
    broken.command(&["HDEL", &calls, "input1:one"]);
    assert!(matches!(talk.commit(&commit(&grant)).await, Err(StoreError::Corrupt(_))), "the input is gone");
    broken.command(&["HDEL", &calls, "digest:one"]);
    assert!(matches!(talk.renew(&renew(&grant)).await, Err(StoreError::Corrupt(_))), "the call is gone");
    broken.command(&["ZADD", &broken.key(":due"), "0", "no slot"]);
    let bucket = broken.key(":due").split(['.', '}']).nth(2).expect("a bucket").parse().expect("a number");
    assert!(matches!(talk.store.overdue(bucket, 10).await, Err(StoreError::Corrupt(_))));
}
