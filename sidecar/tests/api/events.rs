//! Server-sent events: joined, left, resumed, made anew.

use std::sync::Arc;
use std::time::Duration;

use holdfast_sidecar::state::Block;
use holdfast_sidecar::store::{Limits, MemoryStore};
use serde_json::json;

use crate::kit::{Event, Send, Setup, check_whole, echo, soon};
use crate::parts::{Puppet, asked};

fn after(path: &str, id: &str) -> Send {
    Send::get(path).header("last-event-id", id)
}

#[tokio::test]
async fn a_stream_resumes_after_any_of_its_events() {
    let (model, mut asks) = Puppet::new();
    let agent = Setup::with_model(model).start().await;
    let body = json!({"input": "x", "stream": true, "callId": "c-1"});
    let mut stream = agent.stream(Send::post("/v1/calls").json(&body)).await;
    let running = asked(&mut asks).await;
    running.say("one ");
    let mut all = Vec::new();
    while all.last().is_none_or(|event: &Event| event.name != "message.delta") {
        all.push(stream.next().await.expect("an event"));
    }
    running.say("two");
    running.reply("one two");
    all.extend(stream.rest().await);
    check_whole(&all);
    for (index, event) in all.iter().enumerate().take(all.len() - 1) {
        let rest = agent.stream(after("/v1/calls/c-1/events", &event.id)).await.rest().await;
        let (made, logged): (Vec<_>, Vec<_>) = rest.into_iter().partition(|event| event.id.contains('.'));
        assert_eq!(logged, all[index + 1..], "after {event:?}");
        if !made.is_empty() {
            // Whether the deltas of a message came before the client left cannot be told: it is said anew.
            let names: Vec<_> = made.iter().map(|event| event.name.as_str()).collect();
            assert_eq!(names, ["message.reset", "message.delta"]);
            assert_eq!(made[1].data["text"], "one two");
        }
    }
    let last = all.last().expect("events");
    let again = agent.stream(after("/v1/calls/c-1/events", &last.id)).await.rest().await;
    assert_eq!(again.last().map(|event| &event.data), Some(&last.data), "a rejoin of a finished call ends");
}

#[tokio::test]
async fn a_call_that_nobody_streamed_is_told_in_one_delta() {
    let agent = echo().await;
    agent.post("/v1/calls", json!({"input": "x", "callId": "c-1"})).await.ok();
    let events = agent.stream(Send::get("/v1/calls/c-1/events")).await.rest().await;
    check_whole(&events);
    assert_eq!(events.iter().filter(|event| event.name == "message.delta").count(), 1);
    assert_eq!(events.iter().filter(|event| event.name == "message.reset").count(), 0);
}

#[tokio::test]
async fn events_are_made_from_the_reply_when_the_log_is_gone() {
    let limits = Limits { event_ttl: Duration::from_millis(1), ..Limits::default() };
    let agent = Setup::limited(limits).start().await;
    let call = agent.post("/v1/calls", json!({"input": "x", "callId": "c-1"})).await.ok();
    let events = soon("the end of the log", async {
        loop {
            let events = agent.stream(Send::get("/v1/calls/c-1/events")).await.rest().await;
            if events[0].name != "call.queued" {
                return events;
            }
        }
    })
    .await;
    check_whole(&events);
    let names: Vec<_> = events.iter().map(|event| event.name.as_str()).collect();
    assert_eq!(names, ["message.delta", "message.completed", "call.completed"]);
    assert_eq!(events[2].data, call);
    for event in &events {
        let resumed = agent.stream(after("/v1/calls/c-1/events", &event.id)).await.rest().await;
        assert_eq!(resumed[0].name, "message.reset", "what the client has is not known");
        check_whole(&resumed);
    }
}

#[tokio::test]
async fn a_log_that_was_cut_is_bridged_with_what_is_known() {
    let (model, mut asks) = Puppet::new();
    let limits = Limits { event_log_bytes: 600, ..Limits::default() };
    let agent = Setup { store: Arc::new(MemoryStore::new(limits)), ..Setup::with_model(model) }.start().await;
    let body = json!({"input": "x", "stream": true, "callId": "c-1"});
    let mut stream = agent.stream(Send::post("/v1/calls").json(&body)).await;
    let running = asked(&mut asks).await;
    let first = stream.next().await.expect("call.queued");
    let mut text = String::new();
    for n in 0..20 {
        let piece = format!("piece {n} ");
        running.say(&piece);
        text.push_str(&piece);
        stream.until("message.delta").await;
    }
    drop(stream);
    let mut joined = agent.stream(after("/v1/calls/c-1/events", &first.id)).await;
    let mut events = vec![joined.next().await.expect("an event")];
    assert_eq!(events[0].name, "message.reset");
    running.reply_with(vec![Block::text(text)]);
    events.extend(joined.rest().await);
    check_whole(&events);
}

#[tokio::test]
async fn a_call_runs_on_when_its_client_hangs_up() {
    let (model, mut asks) = Puppet::new();
    let agent = Setup::with_model(model).start().await;
    let body = json!({"input": "x", "stream": true, "callId": "c-1"});
    let mut stream = agent.stream(Send::post("/v1/calls").json(&body)).await;
    let running = asked(&mut asks).await;
    running.say("half ");
    let seen = stream.until("message.delta").await;
    drop(stream);
    let waiting = tokio::spawn({
        let (address, body) = (agent.address, json!({"input": "y", "callId": "c-2"}));
        async move { crate::kit::send(address, Send::post("/v1/calls").json(&body)).await }
    });
    soon("the second call", async {
        while agent.get("/v1/calls").await.ok().as_array().map(Vec::len) != Some(2) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    waiting.abort();
    running.say("whole");
    running.reply("half whole");
    let rest = agent.stream(after("/v1/calls/c-1/events", &seen.id)).await.rest().await;
    assert_eq!(rest.last().map(|event| event.name.as_str()), Some("call.completed"));
    asked(&mut asks).await.reply("2");
    let second = agent.stream(Send::get("/v1/calls/c-2/events")).await.rest().await;
    check_whole(&second);
    assert_eq!(agent.get("/v1/state").await.ok()["version"], 2);
}

#[tokio::test]
async fn a_client_that_hangs_up_while_its_call_is_admitted_leaves_a_call_that_runs() {
    let store = Arc::new(crate::parts::Sleepy::new());
    store.wake();
    let agent = Setup { store: store.clone(), ..Setup::default() }.start().await;
    store.hold_replies();
    let ask = Send::post("/v1/calls").json(&json!({"input": "x", "callId": "c-1"}));
    let client = tokio::spawn(crate::kit::send(agent.address, ask));
    soon("the call", async {
        while agent.get("/v1/calls").await.ok() == json!([]) {
            tokio::task::yield_now().await;
        }
    })
    .await;
    client.abort();
    let _ = client.await;
    soon("the server to notice", async {
        let none = "holdfast_requests_open 0\n";
        while !String::from_utf8_lossy(&agent.platform(http::Method::GET, "/metrics").await.body)
            .contains(none)
        {
            tokio::task::yield_now().await;
        }
    })
    .await;
    store.let_replies_go();
    let events = agent.stream(Send::get("/v1/calls/c-1/events")).await.rest().await;
    check_whole(&events);
    assert_eq!(events.last().expect("events").data["resumes"], 0, "its lease was granted to nobody");
}

#[tokio::test]
async fn what_is_no_event_id_is_refused() {
    let agent = echo().await;
    agent.post("/v1/calls", json!({"input": "x", "callId": "c-1"})).await.ok();
    for wrong in ["x", "1", "1-", "-1", "1-x"] {
        agent.send(after("/v1/calls/c-1/events", wrong)).await.problem(400, "bad-event-id");
    }
    agent.get("/v1/calls/nobody/events").await.problem(404, "no-such-call");
}

#[tokio::test]
async fn two_clients_of_one_call_see_the_same() {
    let (model, mut asks) = Puppet::new();
    let agent = Setup::with_model(model).start().await;
    let body = json!({"input": "x", "stream": true, "callId": "c-1"});
    let one = agent.stream(Send::post("/v1/calls").json(&body)).await;
    let running = asked(&mut asks).await;
    let two = agent.stream(Send::post("/v1/calls").json(&body)).await;
    running.say("same ");
    running.reply("same ");
    let (one, two) = tokio::join!(one.rest(), two.rest());
    check_whole(&one);
    assert_eq!(one, two);
}
