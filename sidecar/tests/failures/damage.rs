//! Keys that hold something else than they should.

use holdfast_sidecar::store::*;
use holdfast_tests::redis::Options;

use super::Broken;
use crate::support::requests::*;

const WRITES: [&str; 8] = ["begin", "claim", "append", "renew", "interrupt", "suspend", "commit", "delete"];

async fn running(broken: &Broken) -> Grant {
    broken.talk.turn("zero").await;
    let grant = broken.talk.granted("one").await;
    let events = vec![event(1, EventName::Started, "{}")];
    broken.talk.renew(&Renew { events, ..renew(&grant) }).await.expect("renew");
    broken.talk.waiting(&begin("two"), 1).await;
    grant
}

#[tokio::test]
async fn a_key_of_another_type_is_named_and_nothing_is_written() {
    // The key, and the operations that need it.
    let cases = [
        (":h", &WRITES.join(" ")[..]),
        (":c", "commit"),
        (":due", "begin append renew interrupt suspend commit delete"),
        (":s:", "begin append renew interrupt suspend commit delete"),
        (":e:one", "append renew suspend commit"),
        (":r:one", "commit"),
    ];
    for (end, expected) in cases {
        for operation in expected.split(' ') {
            let broken = Broken::new(Options::default().volatile());
            let grant = running(&broken).await;
            let key = match end {
                ":r:one" => broken.key(":h").replace(":h", end),
                ":s:" => broken.key(":s:*"),
                _ => broken.key(end),
            };
            assert!(!broken.command(&["DEL", &key]).starts_with('-'));
            let wrong = if end == ":h" { "LPUSH" } else { "SADD" };
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
    let events = vec![event(2, EventName::Delta, "{}")];
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
    let head = broken.key(":h");
    // The session is one field, and it has bytes that only Redis itself passes on unharmed.
    let set = |what: &str| {
        let script = format!(
            "local good = redis.call('HGET', KEYS[1], 'good') or redis.call('HGET', KEYS[1], 's') \
             redis.call('HSET', KEYS[1], 'good', good, 's', {what})"
        );
        let said = broken.command(&["EVAL", &script, "1", &head]);
        assert!(!said.starts_with('-'), "{said}");
    };
    let damages = [
        "'garbage'",
        "''",
        "string.rep('1', #good)",
        "string.rep('\\0', #good)",
        "'\\2' .. string.sub(good, 2)",
        "string.sub(good, 1, 50)",
        "string.sub(good, 1, -2)",
    ];
    for damage in damages {
        set(damage);
        let before = broken.digest();
        for operation in WRITES {
            let answer = one_of(&broken.talk, &grant, operation).await;
            let corrupt = matches!(&answer, Err(StoreError::Corrupt(text)) if text.contains(&head));
            assert!(corrupt, "{operation} with {damage}: {answer:?}");
        }
        let loaded = broken.talk.store.load(&broken.talk.slot, None).await;
        assert!(matches!(loaded, Err(StoreError::Corrupt(_))), "{damage}: {loaded:?}");
        assert_eq!(broken.digest(), before, "{damage}");
    }
    set("good .. 'more'");
    assert_eq!(broken.talk.load().await.messages.len(), 2, "what a newer version adds does no harm");
    broken.command(&["HDEL", &head, "s"]);
    let answer = broken.talk.store.begin(&broken.talk.slot, &begin("four")).await;
    assert!(matches!(answer, Err(StoreError::Corrupt(_))), "{answer:?}");
}

#[tokio::test]
async fn a_history_that_lost_a_part_is_never_a_shorter_one() {
    for damage in [&["LPOP"][..], &["DEL"], &["RPUSH", "more"]] {
        let broken = Broken::new(Options::default().volatile());
        let grant = running(&broken).await;
        let key = broken.key(":c");
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
    let zero = broken.key(":r:zero");
    broken.command(&["SET", &zero, "nonsense"]);
    assert!(matches!(talk.store.begin(&talk.slot, &begin("zero")).await, Err(StoreError::Corrupt(_))));

    let head = broken.key(":h");
    broken.command(&["HDEL", &head, "ione"]);
    assert!(matches!(talk.commit(&commit(&grant)).await, Err(StoreError::Corrupt(_))), "the input is gone");
    broken.command(&["HDEL", &head, "cone"]);
    assert!(matches!(talk.renew(&renew(&grant)).await, Err(StoreError::Corrupt(_))), "the call is gone");
    broken.command(&["ZADD", &broken.key(":due"), "0", "no slot"]);
    let bucket = broken.key(":due").split(['.', '}']).nth(2).expect("a bucket").parse().expect("a number");
    assert!(matches!(talk.store.overdue(bucket, 10).await, Err(StoreError::Corrupt(_))));
}
