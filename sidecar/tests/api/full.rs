//! A store that takes nothing new: what runs loses nothing by it but time.

use std::sync::Arc;
use std::time::Duration;

use holdfast_sidecar::session::Settings;
use holdfast_sidecar::store::{Limits, Store};
use serde_json::json;

use crate::kit::{Replica, Send, Setup, check_whole, soon};
use crate::parts::{Puppet, Sleepy, Slow, asked, slow_call};

const LEASE: Duration = Duration::from_millis(300);

fn store() -> Arc<Sleepy> {
    let store = Arc::new(Sleepy::with(Limits { lease: LEASE, ..Limits::default() }));
    store.wake();
    store
}

fn replica(store: &Arc<Sleepy>, call_timeout: Duration) -> Setup {
    let settings = Settings { lease: LEASE, call_timeout, ..Settings::default() };
    Setup { store: Arc::clone(store) as Arc<dyn Store>, settings, ..Setup::default() }
}

async fn a_step_is_refused(store: &Sleepy) {
    let before = store.refused();
    soon("a step to be refused", async {
        while store.refused() == before {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

async fn begin(agent: &Replica) {
    agent.post("/v1/calls", json!({"input": "x", "callId": "c-1", "background": true})).await.ok();
}

#[tokio::test]
async fn a_refused_step_is_tried_again_under_the_same_lease() {
    let store = store();
    let (model, mut asks) = Puppet::new();
    let (tool, gate) = Slow::new();
    let long = Duration::from_secs(600);
    let here = Setup { model: Arc::new(model), tools: Arc::new(tool), ..replica(&store, long) }.start().await;
    let (model, mut there_asks) = Puppet::new();
    let there = Setup { model: Arc::new(model), ..replica(&store, long) }.start().await;
    begin(&here).await;
    let running = asked(&mut asks).await;
    store.fill();
    running.reply_with(vec![slow_call()]);
    a_step_is_refused(&store).await;
    // Whoever does not renew for so long is taken for dead, by a replica that looks once a second.
    tokio::time::sleep(LEASE * 2 + Duration::from_millis(1500)).await;
    assert!(there_asks.try_recv().is_err(), "another replica took the call");
    let refused = there.post("/v1/sessions/other/calls", json!({"input": "y"})).await;
    assert_eq!(refused.problem(503, "store-unavailable")["admitted"], false);
    store.make_room();
    gate.add_permits(1);
    asked(&mut asks).await.reply("done");
    let events = here.stream(Send::get("/v1/calls/c-1/events")).await.rest().await;
    check_whole(&events);
    let call = &events.last().expect("events").data;
    assert_eq!(
        (&call["text"], &call["resumes"], &call["usage"]["toolCalls"]),
        (&json!("done"), &json!(0), &json!(1))
    );
}

#[tokio::test]
async fn it_ends_with_the_calls_time_and_the_transcript_is_valid() {
    let store = store();
    let (model, mut asks) = Puppet::new();
    let (tool, _gate) = Slow::new();
    let short = Duration::from_secs(1);
    let agent =
        Setup { model: Arc::new(model), tools: Arc::new(tool), ..replica(&store, short) }.start().await;
    begin(&agent).await;
    let running = asked(&mut asks).await;
    store.fill();
    running.reply_with(vec![slow_call()]);
    let events = agent.stream(Send::get("/v1/calls/c-1/events")).await.rest().await;
    check_whole(&events);
    let call = &events.last().expect("events").data;
    assert_eq!((&call["status"], &call["error"]["type"]), (&json!("failed"), &json!("call-timeout")));
    let state = agent.get("/v1/state").await.ok();
    let roles: Vec<_> = state["context"].as_array().expect("messages").iter().map(|m| &m["role"]).collect();
    assert_eq!(roles, ["user", "assistant", "tool"], "{state}");
    let result = &state["context"][2]["content"][0];
    assert_eq!((&result["toolUseId"], &result["isError"]), (&json!("t1"), &json!(true)));
    assert_eq!(
        result["content"][0]["text"], "the call ended before this tool had answered",
        "it has not run"
    );
    store.make_room();
    agent.send(Send::put("/v1/state").json(&state).header("if-match", "*")).await.ok();
}

#[tokio::test]
async fn it_ends_when_somebody_wants_the_call_stopped() {
    let store = store();
    let (model, mut asks) = Puppet::new();
    let (tool, _gate) = Slow::new();
    let long = Duration::from_secs(600);
    let agent =
        Setup { model: Arc::new(model), tools: Arc::new(tool), ..replica(&store, long) }.start().await;
    begin(&agent).await;
    let running = asked(&mut asks).await;
    store.fill();
    running.reply_with(vec![slow_call()]);
    a_step_is_refused(&store).await;
    agent.post("/v1/interrupt", json!({"message": "never mind"})).await.ok();
    let events = agent.stream(Send::get("/v1/calls/c-1/events")).await.rest().await;
    assert_eq!(events.last().expect("events").name, "call.interrupted");
    assert_eq!(agent.get("/v1/state").await.ok()["context"].as_array().map(Vec::len), Some(4));
}
