//! Any string is an id, and none reaches another's slot.

use holdfast_sidecar::state::Slot;

use super::Bench;
use crate::support::requests::*;

pub async fn any_id_is_as_good_as_another(bench: Bench) {
    let (_open, talk) = bench.talk(limits());
    let long = "ü".repeat(256);
    for odd in ["/", "*", "..", ".", "a\nb", "\r\n", "😀", "\0", "{x}", "a:b", "~", "%2e", " ", "?", &long]
    {
        let slot = Slot::new(Some(odd), odd).expect("a slot");
        let talk = Talk { slot: slot.clone(), ..talk.clone() };
        let grant = talk.granted(odd).await;
        assert_eq!(grant.call.id.as_str(), odd);
        talk.append(&append(&grant, 0, vec![])).await.expect("append");
        talk.waiting(&begin(&format!("{}2", odd.chars().take(9).collect::<String>())), 1).await;
        assert_eq!(talk.live().await[0].id.as_str(), odd);
        talk.commit(&commit(&grant)).await.expect("commit");
        assert!(talk.is_overdue().await, "{odd:?}");
        assert_eq!(talk.history().await.len(), 2);
        assert_eq!(talk.events(odd, None).await.events.len(), 1);
        let listed = talk.store.list(&id(odd), 10, None).await.expect("list").sessions;
        assert_eq!(listed.len(), 1);
        assert_eq!(listed[0].session.as_str(), odd);
        assert!(talk.delete().await);
    }
}

pub async fn ids_that_could_collide_do_not(bench: Bench) {
    let (_open, talk) = bench.talk(limits());
    let pairs: [(Option<&str>, &str); 14] = [
        (Some("a"), "b.c"),
        (Some("a.b"), "c"),
        (Some("a:b"), "c"),
        (Some("a"), "b:c"),
        (Some("a/b"), "c"),
        (Some("a"), "b/c"),
        (Some("~"), "s"),
        (None, "s"),
        (None, "~.s"),
        (Some("A"), "s"),
        (Some("a"), "s"),
        (Some("a "), "s"),
        (Some("é"), "s"),
        (Some("e\u{301}"), "s"),
    ];
    let talks: Vec<_> = pairs
        .iter()
        .map(|(user, session)| Talk { slot: Slot::new(*user, session).expect("a slot"), ..talk.clone() })
        .collect();
    for (n, talk) in talks.iter().enumerate() {
        let own = holdfast_sidecar::store::Begin {
            input: vec![blob(&format!("\"{n}\""))],
            ..begin("the same call")
        };
        let grant = talk.granted_by(&own).await;
        talk.commit(&commit(&grant)).await.expect("commit");
    }
    for (n, talk) in talks.iter().enumerate() {
        assert_eq!(talk.history().await[0], n.to_string(), "{}", talk.slot);
    }
    // Calls of one session whose names could run into each other.
    let calls = ["input1:x", "x", "1:x", "x:input1", "3:abc", ":", "1", "11"];
    let talk = Talk { slot: slot("calls"), ..talk };
    let mut grant = talk.granted("first").await;
    for chunk in calls.chunks(4) {
        for (n, call) in chunk.iter().enumerate() {
            talk.waiting(&begin(call), n + 1).await;
        }
        for call in chunk {
            let done = holdfast_sidecar::store::Commit { go_on: true, ..commit(&grant) };
            let next = talk.commit(&done).await.expect("commit").expect("the next");
            assert_eq!((next.id.as_str(), &next.input), (*call, &begin(call).input));
            grant.session.version += 1;
            grant.call = *next;
        }
    }
}
