//! The event log of a call.

use std::time::Duration;

use holdfast_sidecar::store::*;

use super::Bench;
use crate::support::requests::*;

fn ids(page: &EventPage) -> Vec<(u64, u64)> {
    page.events.iter().map(|event| (event.id.fence, event.id.seq)).collect()
}

pub async fn events_have_the_holders_fence(bench: Bench) {
    let (_open, talk) = bench.talk(limits());
    let first = talk.granted("one").await;
    let fence = first.token.fence;
    let started = vec![event(1, EventName::Started, "{\"a\":1}"), event(2, EventName::Delta, "{}")];
    talk.renew(&Renew { events: started, ..renew(&first) }).await.expect("renew");
    talk.suspend(&Suspend { events: vec![event(3, EventName::Suspended, "{}")], ..suspend(&first) }).await;
    let second = talk.takeover(&claim()).await;
    let resumed = vec![event(1, EventName::Resumed, "{}")];
    talk.renew(&Renew { events: resumed, ..renew(&second) }).await.expect("renew");

    let page = talk.events("one", None).await;
    let expected = [(fence, 0), (fence, 1), (fence, 2), (fence, 3), (second.token.fence, 1)];
    assert_eq!(ids(&page), expected);
    assert_eq!(page.events[1].name, EventName::Started);
    assert_eq!(page.events[1].data, blob("{\"a\":1}"));
    assert!(!page.gap && matches!(page.status, CallStatus::Live(_)));
    let page = talk.events("one", Some(EventId { fence, seq: 2 })).await;
    assert_eq!(ids(&page), expected[3..]);
    let between = EventId { fence: fence + 1, seq: 0 };
    assert_eq!(ids(&talk.events("one", Some(between)).await), expected[4..]);
    let later = EventId { fence: u64::MAX >> 12, seq: 0 };
    assert_eq!(ids(&talk.events("one", Some(later)).await), []);
    assert_eq!(talk.events("none", None).await.status, CallStatus::Unknown);
}

pub async fn events_sent_again_are_logged_once(bench: Bench) {
    let (_open, talk) = bench.talk(limits());
    let grant = talk.granted("one").await;
    let send = |seqs: &[u64]| Renew {
        events: seqs.iter().map(|seq| event(*seq, EventName::Delta, "{}")).collect(),
        ..renew(&grant)
    };
    for seqs in [&[1, 2][..], &[1, 2], &[2, 3], &[0, 1], &[5], &[4], &[7, 6]] {
        talk.renew(&send(seqs)).await.expect("renew");
    }
    let seqs: Vec<_> = talk.events("one", None).await.events.iter().map(|event| event.id.seq).collect();
    assert_eq!(seqs, [0, 1, 2, 3, 5, 7]);

    let steps = vec![step(StepKind::Message, "1")];
    let append_it = Append { events: vec![event(8, EventName::Delta, "{}")], ..append(&grant, 0, steps) };
    let last = vec![NewEvent { message: None, ..event(9, EventName::Completed, "") }];
    let commit_it = Commit { events: last, ..commit(&grant) };
    for _ in 0..2 {
        talk.append(&append_it).await.expect("append");
    }
    for _ in 0..2 {
        talk.commit(&commit_it).await.expect("commit");
    }
    let page = talk.events("one", None).await;
    assert_eq!(page.events.len(), 8);
    assert_eq!(page.events[7].name, EventName::Completed);
    assert!(matches!(page.status, CallStatus::Done(_)));
}

pub async fn events_carry_the_messages_they_came_with(bench: Bench) {
    let (_open, talk) = bench.talk(limits());
    let grant = talk.granted("one").await;
    let about = |seq, message| NewEvent { message, ..event(seq, EventName::MessageCompleted, "{\"n\":1}") };
    let steps = vec![step(StepKind::Message, "\"a\""), step(StepKind::Result, "\"b\"")];
    let events = vec![about(1, Some(1)), about(2, None), about(3, Some(0)), about(4, Some(2))];
    talk.append(&Append { events, ..append(&grant, 0, steps) }).await.expect("append");
    let events = vec![about(5, Some(0))];
    talk.commit(&Commit { events, ..commit(&grant) }).await.expect("commit");
    let messages: Vec<_> =
        talk.events("one", None).await.events.into_iter().skip(1).map(|event| event.message).collect();
    let expected = [Some("\"b\""), None, Some("\"a\""), None, Some("\"answer to one\"")];
    assert_eq!(messages, expected.map(|text| text.map(blob)));
}

pub async fn a_log_too_large_drops_its_older_half(bench: Bench) {
    let (_open, talk) = bench.talk(Limits { event_log_bytes: 100, ..limits() });
    let grant = talk.granted("one").await;
    let fence = grant.token.fence;
    let text = format!("\"{}\"", "x".repeat(18));
    let log = |seq| Renew { events: vec![event(seq, EventName::Delta, &text)], ..renew(&grant) };
    for seq in 1..=3 {
        talk.renew(&log(seq)).await.expect("renew");
    }
    let after = |seq| Some(EventId { fence, seq });
    assert!(!talk.events("one", None).await.gap, "all there");
    // 24 bytes of `call.queued` and four times 20 are more than 100: three of five go.
    talk.renew(&log(4)).await.expect("renew");
    let page = talk.events("one", None).await;
    assert_eq!((ids(&page), page.gap), (vec![(fence, 3), (fence, 4)], true));
    assert!(talk.events("one", after(2)).await.gap);
    let page = talk.events("one", after(3)).await;
    assert_eq!((ids(&page), page.gap), (vec![(fence, 4)], false));
    talk.commit(&commit(&grant)).await.expect("commit");
    assert!(talk.events("one", after(1)).await.gap, "the end does not hide it");
}

pub async fn events_of_a_finished_call_are_there_for_a_while(bench: Bench) {
    let (_open, talk) = bench.talk(Limits { event_ttl: Duration::from_secs(60), ..limits() });
    talk.turn("one").await;
    talk.turn("two").await;
    assert_eq!(talk.events("one", None).await.events.len(), 1);
}
