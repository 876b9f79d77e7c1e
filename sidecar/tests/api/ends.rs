//! How calls end when they do not simply end: too late, given up, cut, without the beginning of their history.

use std::sync::Arc;
use std::time::Duration;

use holdfast_sidecar::session::{OUTCOME_UNKNOWN, Settings};
use holdfast_sidecar::state::{CallId, Message, Slot};
use holdfast_sidecar::store::{
    Begin, Begun, Blob, Claim, Claimed, Epoch, Limits, MemoryStore, Nonce, OnBusy, Store,
};
use serde_json::json;

use crate::kit::{Send, Setup, check_whole, soon};
use crate::parts::{Puppet, Slow, asked, slow_call};

#[tokio::test]
async fn a_call_that_takes_too_long_fails_and_can_be_retried() {
    let (model, mut asks) = Puppet::new();
    let settings = Settings { call_timeout: Duration::from_millis(300), ..Settings::default() };
    let agent = Setup { settings, ..Setup::with_model(model) }.start().await;
    let failed = agent.post("/v1/calls", json!({"input": "x", "callId": "c-1"})).await.ok();
    assert_eq!((&failed["status"], &failed["error"]["type"]), (&json!("failed"), &json!("call-timeout")));
    assert_eq!(failed["error"]["retryable"], true);
    assert!(failed["error"]["detail"].as_str().is_some_and(|text| text.contains("loop.callTimeout")));
    asked(&mut asks).await.abandoned().await;
    let state = agent.get("/v1/state").await.ok();
    assert_eq!((&state["version"], state["context"].as_array().map(Vec::len)), (&json!(1), Some(1)));
    let events = agent.stream(Send::get("/v1/calls/c-1/events")).await.rest().await;
    assert_eq!(events.last().expect("events").name, "call.failed");

    agent.send(Send::post("/v1/calls/c-1/retry").json(&json!({"background": true}))).await.ok();
    asked(&mut asks).await.reply("in time");
    check_whole(&agent.stream(Send::get("/v1/calls/c-1/events")).await.rest().await);
    assert_eq!(agent.get("/v1/calls/c-1").await.ok()["text"], "in time");
}

#[tokio::test]
async fn a_tool_that_outlasts_its_call_leaves_a_history_that_a_model_can_be_sent() {
    let (model, mut asks) = Puppet::new();
    let (tool, _gate) = Slow::new();
    let settings = Settings { call_timeout: Duration::from_millis(400), ..Settings::default() };
    let agent = Setup { settings, tools: Arc::new(tool), ..Setup::with_model(model) }.start().await;
    agent.post("/v1/calls", json!({"input": "x", "callId": "c-1", "background": true})).await.ok();
    asked(&mut asks).await.reply_with(vec![slow_call()]);
    let events = agent.stream(Send::get("/v1/calls/c-1/events")).await.rest().await;
    assert_eq!(events.last().expect("events").data["error"]["type"], "call-timeout");
    let state = agent.get("/v1/state").await.ok();
    let result = &state["context"][2]["content"][0];
    assert_eq!((&result["toolUseId"], &result["isError"]), (&json!("t1"), &json!(true)));
    assert_eq!(result["content"][0]["text"], OUTCOME_UNKNOWN);
    agent.post("/v1/calls", json!({"input": "y", "background": true})).await.ok();
    assert_eq!(asked(&mut asks).await.heard.len(), 4, "all of it is sent");
}

/// What a process that dies at once leaves behind.
async fn died_over(store: &MemoryStore, slot: &Slot, call: &str, times: u32) {
    let claim = || Claim {
        holder: "dead".into(),
        nonce: Nonce::random(),
        known: None,
        epoch: Epoch::random(),
        leave: 0..0,
    };
    let input = serde_json::to_vec(&Message::user("kills")).expect("JSON");
    let begin = Begin {
        call: CallId::new("call", call).expect("an id"),
        digest: "d".into(),
        input: vec![Blob::from(input)],
        context: Blob::empty(),
        revision: String::new(),
        stream: false,
        on_busy: OnBusy::Enqueue,
        queued: Blob::json(&json!({"callId": call})),
        claim: claim(),
    };
    let begun = store.begin(slot, &begin).await.expect("begun");
    assert!(matches!(begun, Begun::Granted(_)), "{begun:?}");
    for _ in 1..times {
        soon("a lease that nobody renews", async {
            while !matches!(store.claim(slot, &claim()).await, Ok(Claimed::Granted(_))) {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
}

#[tokio::test]
async fn a_call_that_has_killed_three_replicas_is_given_up_and_its_session_is_free() {
    let (model, mut asks) = Puppet::new();
    let lease = Duration::from_millis(100);
    let store = Arc::new(MemoryStore::new(Limits { lease, ..Limits::default() }));
    let slot = Slot::new(None, "default").expect("ids");
    died_over(&store, &slot, "c-1", 3).await;
    let settings = Settings { lease, ..Settings::default() };
    let agent = Setup { store, settings, ..Setup::with_model(model) }.start().await;
    let events = agent.stream(Send::get("/v1/calls/c-1/events")).await.rest().await;
    assert_eq!(events.last().expect("events").name, "call.failed");
    let failed = agent.get("/v1/calls/c-1").await.ok();
    assert_eq!(
        (&failed["status"], &failed["error"]["type"]),
        (&json!("failed"), &json!("recovery-exhausted"))
    );
    assert!(asks.try_recv().is_err(), "it was not tried once more");
    let state = agent.get("/v1/state").await.ok();
    assert_eq!(state["context"][0]["content"][0]["text"], "kills", "what was said stays said");
    agent.post("/v1/calls", json!({"input": "harmless", "background": true})).await.ok();
    assert_eq!(asked(&mut asks).await.heard, ["kills", "harmless"]);
}

#[tokio::test]
async fn an_answer_that_was_cut_says_so() {
    let (model, mut asks) = Puppet::new();
    let agent = Setup::with_model(model).start().await;
    let said = json!([{"role": "user", "content": "tell me", "stopReason": "maxTokens", "model": "me"}]);
    agent.post("/v1/calls", json!({"messages": said, "callId": "c-1", "background": true})).await.ok();
    asked(&mut asks).await.cut("Once upon", "one-of-today");
    let events = agent.stream(Send::get("/v1/calls/c-1/events")).await.rest().await;
    let call = &events.last().expect("events").data;
    assert_eq!((&call["status"], &call["stopReason"]), (&json!("completed"), &json!("maxTokens")));
    assert_eq!(call["messages"][0]["stopReason"], "maxTokens");
    assert_eq!(agent.get("/v1/calls/c-1").await.ok(), *call);
    let state = agent.get("/v1/state").await.ok();
    for field in ["stopReason", "model"] {
        assert_eq!(state["context"][0].get(field), None, "that is not the client's to say");
    }
    assert_eq!(state["context"][1]["stopReason"], "maxTokens");
    assert_eq!(state["context"][1]["model"], "one-of-today");
    let metrics = agent.platform(http::Method::GET, "/metrics").await;
    let text = String::from_utf8(metrics.body.to_vec()).expect("UTF-8");
    assert!(text.contains("holdfast_model_replies_total{finish=\"length\"} 1"), "{text}");

    agent.post("/v1/calls", json!({"input": "go on", "callId": "c-2", "background": true})).await.ok();
    asked(&mut asks).await.reply("a time.");
    let events = agent.stream(Send::get("/v1/calls/c-2/events")).await.rest().await;
    assert_eq!(events.last().expect("events").data.get("stopReason"), None, "all was said");
}

#[tokio::test]
async fn a_history_that_does_not_fit_is_cut_at_a_turn_and_the_call_says_so() {
    let (model, mut asks) = Puppet::new();
    let settings = Settings { context_window: 300, ..Settings::default() };
    let agent = Setup { settings, ..Setup::with_model(model) }.start().await;
    let mut cut = None;
    for n in 0..10 {
        let call = format!("c-{n}");
        let question = format!("question {n} {}", "x".repeat(60));
        agent.post("/v1/calls", json!({"input": question, "callId": call, "background": true})).await.ok();
        let asked = asked(&mut asks).await;
        assert!(asked.heard[0].starts_with("question"), "cut in the middle of a turn: {:?}", asked.heard);
        assert_eq!(asked.heard.last(), Some(&question));
        let sent = asked.heard.len();
        asked.reply("an answer");
        check_whole(&agent.stream(Send::get(&format!("/v1/calls/{call}/events"))).await.rest().await);
        let told = agent.get(&format!("/v1/calls/{call}")).await.ok();
        assert_eq!(told["messagesNotSent"].as_u64().unwrap_or(0), (2 * n + 1 - sent) as u64, "{told}");
        cut = told["messagesNotSent"].as_u64();
    }
    assert!(cut > Some(0), "everything fitted");
    assert_eq!(
        agent.get("/v1/state").await.ok()["context"].as_array().map(Vec::len),
        Some(20),
        "stored whole"
    );
}

#[tokio::test]
async fn a_call_that_has_not_failed_cannot_be_retried() {
    let (model, mut asks) = Puppet::new();
    let agent = Setup::with_model(model).start().await;
    agent.post("/v1/calls", json!({"input": "x", "callId": "c-1", "background": true})).await.ok();
    let running = asked(&mut asks).await;
    agent.send(Send::post("/v1/calls/c-1/retry")).await.problem(409, "session-busy");
    running.fail(holdfast_sidecar::model::ModelError::Refused { detail: "no".into() });
    let failed = agent.stream(Send::get("/v1/calls/c-1/events")).await.rest().await;
    assert_eq!(failed.last().expect("events").name, "call.failed");
    let again = Send::post("/v1/calls/c-1/retry").json(&json!({"background": true}));
    assert_eq!(agent.send(again.clone()).await.status.as_u16(), 202);
    let running = asked(&mut asks).await;
    assert_eq!(agent.send(again).await.status.as_u16(), 202, "the same retry, sent again, finds it");
    running.reply("yes");
    check_whole(&agent.stream(Send::get("/v1/calls/c-1/events")).await.rest().await);
    assert!(asks.try_recv().is_err(), "it ran once");
}

/// Text that no message comes of is void: a client that shows it as it comes must take it away.
#[tokio::test]
async fn what_was_shown_of_an_answer_that_never_came_is_void() {
    let (model, mut asks) = Puppet::new();
    let settings = Settings { call_timeout: Duration::from_millis(700), ..Settings::default() };
    let agent = Setup { settings, ..Setup::with_model(model) }.start().await;
    for end in ["model-unavailable", "call-timeout"] {
        let body = json!({"input": "x", "stream": true, "callId": end});
        let mut stream = agent.stream(Send::post("/v1/calls").json(&body)).await;
        let running = asked(&mut asks).await;
        running.say("half an ");
        let mut events = vec![stream.until("message.delta").await];
        running.say("answer");
        if end == "model-unavailable" {
            let detail = "it broke off".to_owned();
            running.fail(holdfast_sidecar::model::ModelError::Unavailable { detail, retry_after: None });
        } else {
            running.abandoned().await;
        }
        events.extend(stream.rest().await);
        assert_eq!(events.last().expect("events").data["error"]["type"], end);
        check_whole(&events);
    }
}

#[tokio::test]
async fn an_agent_that_is_to_try_nothing_twice_tries_everything_once() {
    let settings = Settings { recovery_attempts: 0, ..Settings::default() };
    let agent = Setup { settings, ..Setup::default() }.start().await;
    assert_eq!(agent.post("/v1/calls", json!({"input": "x"})).await.ok()["status"], "completed");
}
