//! POST calls and what comes after: every row of its table.

use std::sync::Arc;
use std::time::Duration;

use holdfast_sidecar::model::ModelError;
use holdfast_sidecar::session::Settings;
use holdfast_sidecar::store::{Limits, MemoryStore, OnBusy};
use serde_json::json;

use crate::kit::{Send, Setup, check_whole, echo, soon};
use crate::parts::{Puppet, asked};

#[tokio::test]
async fn a_call_without_ids_is_answered_in_the_default_session() {
    let agent = echo().await;
    let call = agent.post("/v1/calls", json!({"input": "hello"})).await.ok();
    assert_eq!(call["status"], "completed");
    assert_eq!(call["text"], "You said: hello. This is the first thing I remember.");
    assert_eq!(call["messages"][0]["content"][0]["text"], call["text"]);
    assert_eq!(call["messages"].as_array().map(Vec::len), Some(1));
    assert_eq!((&call["version"], &call["resumes"], &call["error"]), (&json!(1), &json!(0), &json!(null)));
    assert_eq!(call["usage"]["modelCalls"], 1);
    let again = agent.post("/v1/sessions/default/calls", json!({"input": "again"})).await.ok();
    assert_eq!(again["text"], "You said: again. I remember 1 earlier turn.");
}

#[tokio::test]
async fn messages_may_be_strings_or_blocks_and_keep_what_nobody_knows() {
    let agent = echo().await;
    let messages = json!([
        {"role": "system", "content": "be kind"},
        {"role": "user", "content": [{"type": "text", "text": "hel"}, {"type": "text", "text": "lo"}], "mood": "sunny",
         "id": "mine", "usage": {"inputTokens": 9}},
    ]);
    let call = agent.post("/v1/calls", json!({ "messages": messages })).await.ok();
    assert_eq!(call["text"], "You said: hello. This is the first thing I remember.");
    let state = agent.get("/v1/state").await.ok();
    assert_eq!(state["context"][1]["mood"], "sunny");
    assert_ne!(state["context"][1]["id"], "mine", "ids are the server's");
    assert_eq!(state["context"][1]["usage"], json!(null));
}

#[tokio::test]
async fn the_same_call_id_is_the_same_call() {
    let agent = echo().await;
    let body = json!({"input": "once", "callId": "c-1"});
    let first = agent.post("/v1/calls", body.clone()).await.ok();
    assert_eq!(first["callId"], "c-1");
    assert_eq!(agent.post("/v1/calls", body).await.ok(), first);
    let by_header = Send::post("/v1/calls").header("idempotency-key", "c-1").json(&json!({"input": "once"}));
    assert_eq!(agent.send(by_header).await.ok(), first);
    let other = agent.post("/v1/calls", json!({"input": "twice", "callId": "c-1"})).await;
    assert_eq!(other.problem(409, "call-conflict")["callId"], "c-1");
    let both = Send::post("/v1/calls").header("idempotency-key", "c-2");
    agent.send(both.json(&json!({"input": "x", "callId": "c-3"}))).await.problem(422, "wrong-shape");
    assert_eq!(agent.get("/v1/calls/c-1").await.ok(), first);
    assert_eq!(agent.get("/v1/state").await.ok()["version"], 1);
}

#[tokio::test]
async fn a_call_is_streamed_by_its_body_or_by_accept() {
    let agent = echo().await;
    let by_body = Send::post("/v1/calls").json(&json!({"input": "hello", "stream": true, "callId": "c-1"}));
    let by_header =
        Send::post("/v1/calls").header("accept", "text/event-stream").json(&json!({"input": "hello"}));
    for ask in [by_body, by_header] {
        let stream = agent.stream(ask).await;
        assert!(stream.headers["location"].to_str().expect("ASCII").starts_with("/v1/calls/c"));
        let events = stream.rest().await;
        check_whole(&events);
        let names: Vec<_> = events.iter().map(|event| event.name.as_str()).collect();
        assert_eq!(names[..2], ["call.queued", "call.started"]);
        assert_eq!(events[0].data["position"], 0);
        assert_eq!(names[names.len() - 2..], ["message.completed", "call.completed"]);
        assert!(names.contains(&"message.delta"));
        let call = &events.last().expect("events").data;
        assert_eq!(call["status"], "completed");
        assert_eq!(
            agent.get(&format!("/v1/calls/{}", call["callId"].as_str().expect("id"))).await.ok(),
            *call
        );
    }
}

#[tokio::test]
async fn a_background_call_is_taken_at_once_and_found_where_it_says() {
    let (model, mut asks) = Puppet::new();
    let agent = Setup::with_model(model).start().await;
    let body = json!({"input": "hello", "background": true, "callId": "a/b"});
    let taken = agent.post("/v1/users/al%2Fice/sessions/s1/calls", body).await;
    assert_eq!(taken.status.as_u16(), 202);
    let place = taken.header("location").expect("a location").to_owned();
    assert_eq!(place, "/v1/users/al%2Fice/sessions/s1/calls/a%2Fb");
    assert_eq!(taken.json()["callId"], "a/b");
    let asked = asked(&mut asks).await;
    assert_eq!(agent.get(&place).await.ok()["status"], "running");
    let live = agent.get("/v1/users/al%2Fice/sessions/s1/calls").await.ok();
    assert_eq!((live.as_array().map(Vec::len), &live[0]["callId"]), (Some(1), &json!("a/b")));
    asked.reply("done");
    let events = agent.stream(Send::get(&format!("{place}/events"))).await.rest().await;
    check_whole(&events);
    assert_eq!(agent.get(&place).await.ok()["text"], "done");
    assert_eq!(agent.get("/v1/users/al%2Fice/sessions/s1/calls").await.ok(), json!([]));
}

#[tokio::test]
async fn calls_of_a_session_wait_their_turn_and_a_full_queue_says_so() {
    let (model, mut asks) = Puppet::new();
    let limits = Limits { queue_limit: 1, ..Limits::default() };
    let agent = Setup { store: Arc::new(MemoryStore::new(limits)), ..Setup::with_model(model) }.start().await;
    let start = |id: &str| json!({"input": id, "background": true, "callId": id});
    agent.post("/v1/calls", start("one")).await.ok();
    let first = asked(&mut asks).await;
    agent.post("/v1/calls", start("two")).await.ok();
    let full = agent.post("/v1/calls", start("three")).await;
    assert_eq!(full.problem(429, "queue-full")["callId"], "three");
    assert!(full.header("retry-after").is_some());
    agent.get("/v1/calls/three").await.problem(404, "no-such-call");
    let live = agent.get("/v1/calls").await.ok();
    let seen: Vec<_> = live.as_array().expect("a list").iter().map(|call| call["status"].clone()).collect();
    assert_eq!(seen, ["running", "queued"]);
    first.reply("1");
    let second = asked(&mut asks).await;
    assert_eq!(second.heard, ["one", "1", "two"]);
    second.reply("2");
}

#[tokio::test]
async fn a_full_replica_takes_no_more() {
    let (model, mut asks) = Puppet::new();
    let settings = Settings { max_running_calls: 1, ..Settings::default() };
    let agent = Setup { settings, ..Setup::with_model(model) }.start().await;
    agent.post("/v1/sessions/a/calls", json!({"input": "x", "background": true})).await.ok();
    let busy = asked(&mut asks).await;
    let refused = agent.post("/v1/sessions/b/calls", json!({"input": "x"})).await;
    refused.problem(429, "overloaded");
    assert!(refused.header("retry-after").is_some());
    busy.reply("done");
}

#[tokio::test]
async fn a_full_replica_retries_nothing_either() {
    let (model, mut asks) = Puppet::new();
    let settings = Settings { max_running_calls: 1, ..Settings::default() };
    let agent = Setup { settings, ..Setup::with_model(model) }.start().await;
    let body = json!({"input": "x", "callId": "c-1", "background": true});
    agent.post("/v1/calls", body).await.ok();
    asked(&mut asks).await.fail(ModelError::Refused { detail: "no".into() });
    agent.stream(Send::get("/v1/calls/c-1/events")).await.until("call.failed").await;
    agent.post("/v1/sessions/b/calls", json!({"input": "x", "background": true})).await.ok();
    let busy = asked(&mut asks).await;
    let refused = agent.send(Send::post("/v1/calls/c-1/retry")).await;
    refused.problem(429, "overloaded");
    assert!(refused.header("retry-after").is_some());
    busy.reply("done");
}

#[tokio::test]
async fn a_busy_session_rejects_where_the_manifest_says_so() {
    let (model, mut asks) = Puppet::new();
    let settings = Settings { on_busy: OnBusy::Reject, ..Settings::default() };
    let agent = Setup { settings, ..Setup::with_model(model) }.start().await;
    agent.post("/v1/calls", json!({"input": "x", "background": true})).await.ok();
    let busy = asked(&mut asks).await;
    agent.post("/v1/calls", json!({"input": "y"})).await.problem(409, "session-busy");
    busy.reply("done");
}

#[tokio::test]
async fn a_reply_that_is_no_longer_kept_is_gone_and_nothing_runs_again() {
    let limits = Limits { reply_ttl: Duration::from_millis(1), ..Limits::default() };
    let agent = Setup::limited(limits).start().await;
    let body = json!({"input": "x", "callId": "c-1"});
    agent.post("/v1/calls", body.clone()).await.ok();
    soon("the reply to be forgotten", async {
        while agent.post("/v1/calls", body.clone()).await.status.as_u16() == 200 {}
    })
    .await;
    agent.post("/v1/calls", body).await.problem(410, "reply-expired");
    agent.get("/v1/calls/c-1").await.problem(404, "no-such-call");
    agent.get("/v1/calls/c-1/events").await.problem(404, "no-such-call");
    assert_eq!(agent.get("/v1/state").await.ok()["version"], 1);
}

#[tokio::test]
async fn a_call_whose_session_is_deleted_is_gone() {
    let (model, mut asks) = Puppet::new();
    let agent = Setup::with_model(model).start().await;
    let waiting = tokio::spawn({
        let address = agent.address;
        let ask = Send::post("/v1/calls").json(&json!({"input": "x", "callId": "c-1"}));
        async move { crate::kit::send(address, ask).await }
    });
    let running = asked(&mut asks).await;
    assert_eq!(agent.delete("/v1").await.status.as_u16(), 204);
    let gone = soon("the deleted call", waiting).await.expect("answered");
    assert_eq!(gone.problem(410, "session-deleted")["callId"], "c-1");
    running.abandoned().await;
    agent.post("/v1/calls", json!({"input": "x", "callId": "c-1"})).await.problem(410, "session-deleted");
    agent.get("/v1/state").await.problem(404, "no-such-session");
}

#[tokio::test]
async fn a_failed_call_is_an_answer_and_can_be_retried_once_it_is_the_last() {
    let (model, mut asks) = Puppet::new();
    let agent = Setup::with_model(model).start().await;
    let body = json!({"input": "x", "callId": "c-1", "background": true});
    agent.post("/v1/calls", body.clone()).await.ok();
    asked(&mut asks).await.fail(ModelError::Unavailable { detail: "busy".into(), retry_after: None });
    let events = agent.stream(Send::get("/v1/calls/c-1/events")).await.rest().await;
    assert_eq!(events.last().map(|event| event.name.as_str()), Some("call.failed"));
    let failed = agent.get("/v1/calls/c-1").await.ok();
    assert_eq!(
        (&failed["status"], &failed["error"]["type"]),
        (&json!("failed"), &json!("model-unavailable"))
    );
    assert_eq!(failed["error"]["retryable"], true);
    assert_eq!(agent.post("/v1/calls", json!({"input": "x", "callId": "c-1"})).await.ok(), failed);

    let retried = agent.send(Send::post("/v1/calls/c-1/retry").json(&json!({"background": true}))).await;
    assert_eq!((retried.status.as_u16(), retried.header("location")), (202, Some("/v1/calls/c-1")));
    let again = asked(&mut asks).await;
    assert_eq!(again.heard, ["x"], "its input is not said twice");
    again.reply("better");
    let events = agent.stream(Send::get("/v1/calls/c-1/events")).await.rest().await;
    check_whole(&events);
    assert_eq!(agent.get("/v1/calls/c-1").await.ok()["text"], "better");
    agent.send(Send::post("/v1/calls/c-1/retry")).await.problem(409, "not-retryable");
    agent.send(Send::post("/v1/calls/nobody/retry")).await.problem(404, "no-such-call");
}

#[tokio::test]
async fn what_a_caller_says_about_its_call_reaches_the_model_and_not_the_state() {
    let (model, mut asks) = Puppet::new();
    let agent = Setup::with_model(model).start().await;
    let context = json!({"requestId": "r-1", "attributes": {"tenant": "t-7"}});
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let ask = Send::post("/v1/calls").header("traceparent", trace);
    agent.send(ask.json(&json!({"input": "x", "background": true, "context": context}))).await.ok();
    let asked = asked(&mut asks).await;
    assert_eq!(asked.context.request_id.as_deref(), Some("r-1"));
    assert_eq!(asked.context.attributes["tenant"], "t-7");
    assert_eq!(asked.context.traceparent.as_deref(), Some(trace));
    asked.reply("done");
    agent.get("/v1/calls").await.ok();
    let text = String::from_utf8(agent.get("/v1/state").await.body.to_vec()).expect("UTF-8");
    assert!(!text.contains("t-7") && !text.contains("r-1"), "{text}");
}

#[tokio::test]
async fn an_interrupt_keeps_the_partial_answer_and_the_message() {
    let (model, mut asks) = Puppet::new();
    let agent = Setup::with_model(model).start().await;
    agent.send(Send::post("/v1/interrupt")).await.problem(404, "no-running-call");
    let body = json!({"input": "tell me", "stream": true, "callId": "c-1"});
    let mut stream = agent.stream(Send::post("/v1/calls").json(&body)).await;
    let running = asked(&mut asks).await;
    running.say("Once upon");
    let mut events = vec![stream.until("message.delta").await];
    agent.post("/v1/calls", json!({"input": "next", "callId": "c-2", "background": true})).await.ok();
    let named = agent.post("/v1/interrupt", json!({"callId": "c-2"})).await;
    assert_eq!((named.status.as_u16(), named.json()["callId"].clone()), (202, json!("c-2")));
    let unnamed = agent.post("/v1/interrupt", json!({"message": "in French"})).await;
    assert_eq!((unnamed.status.as_u16(), unnamed.json()["callId"].clone()), (202, json!("c-1")));
    running.abandoned().await;
    events.extend(stream.rest().await);
    check_whole(&events);
    assert_eq!(events.last().map(|event| event.name.as_str()), Some("call.interrupted"));
    let call = agent.get("/v1/calls/c-1").await.ok();
    assert_eq!((&call["status"], &call["text"]), (&json!("interrupted"), &json!("Once upon")));
    assert_eq!(call["messages"][0]["interrupted"], true);
    let second = agent.stream(Send::get("/v1/calls/c-2/events")).await.rest().await;
    assert_eq!(second.last().map(|event| event.name.as_str()), Some("call.interrupted"));
    assert!(asks.try_recv().is_err(), "a queued call that was interrupted never reaches the model");
    let state = agent.get("/v1/state").await.ok();
    let said: Vec<_> = state["context"]
        .as_array()
        .expect("messages")
        .iter()
        .map(|m| m["content"][0]["text"].clone())
        .collect();
    assert_eq!(said, ["tell me", "Once upon", "in French", "next"]);
}
