//! Stopping exactly one call, wherever it runs and whatever it does, and never another.

use std::sync::Arc;
use std::time::Duration;

use holdfast_sidecar::session::{OUTCOME_UNKNOWN, Settings};
use holdfast_sidecar::store::{Limits, MemoryStore, OnBusy, Store};
use serde_json::{Value, json};

use crate::kit::{Replica, Send, Setup, check_whole};
use crate::parts::{Puppet, Sleepy, Slow, asked, slow_call};

fn background(call: &str) -> Value {
    json!({"input": call, "callId": call, "background": true})
}

async fn texts(agent: &Replica) -> Vec<String> {
    let state = agent.get("/v1/state").await.ok();
    let text = |block: &Value| {
        let text = block["text"].as_str().or(block["content"][0]["text"].as_str());
        text.unwrap_or("…").to_owned()
    };
    state["context"].as_array().expect("messages").iter().map(|m| text(&m["content"][0])).collect()
}

#[tokio::test]
async fn a_tool_on_another_replica_is_stopped_and_the_history_stays_valid() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Limits::default()));
    let (model, mut asks) = Puppet::new();
    let (tool, _gate) = Slow::new();
    let here = Setup { store: Arc::clone(&store), tools: Arc::new(tool), ..Setup::with_model(model) };
    let here = here.start().await;
    let there = Setup { store, ..Setup::default() }.start().await;
    let mut stream = here
        .stream(Send::post("/v1/calls").json(&json!({"input": "go", "callId": "c-1", "stream": true})))
        .await;
    asked(&mut asks).await.reply_with(vec![slow_call()]);
    stream.until("tool.started").await;
    let told = there.post("/v1/interrupt", json!({"message": "never mind"})).await;
    assert_eq!((told.status.as_u16(), told.json()["callId"].clone()), (202, json!("c-1")));
    let events = stream.rest().await;
    assert_eq!(events.last().expect("events").name, "call.interrupted");
    assert_eq!(texts(&there).await, ["go", "…", OUTCOME_UNKNOWN, "never mind"]);
    here.post("/v1/calls", background("next")).await.ok();
    assert_eq!(asked(&mut asks).await.heard.len(), 5, "the model is sent all of it");
}

#[tokio::test]
async fn one_that_comes_late_does_not_hit_the_next_call() {
    let (model, mut asks) = Puppet::new();
    let agent = Setup::with_model(model).start().await;
    agent.post("/v1/calls", background("first")).await.ok();
    agent.post("/v1/calls", background("second")).await.ok();
    asked(&mut asks).await.reply("1");
    let second = asked(&mut asks).await;
    agent.post("/v1/interrupt", json!({"callId": "first"})).await.problem(404, "no-running-call");
    second.say("not ");
    second.reply("not disturbed");
    let events = agent.stream(Send::get("/v1/calls/second/events")).await.rest().await;
    check_whole(&events);
    assert_eq!(events.last().expect("events").data["status"], "completed");
}

#[tokio::test]
async fn none_is_lost_when_its_message_is() {
    let lease = Duration::from_millis(600);
    let store = Arc::new(Sleepy::with(Limits { lease, ..Limits::default() }));
    store.wake();
    store.fall_silent();
    let settings = Settings { lease, ..Settings::default() };
    let (model, mut asks) = Puppet::new();
    let here = Setup { store: store.clone(), settings: settings.clone(), ..Setup::with_model(model) };
    let here = here.start().await;
    let there = Setup { store, settings, ..Setup::default() }.start().await;
    here.post("/v1/calls", background("c-1")).await.ok();
    let running = asked(&mut asks).await;
    assert_eq!(there.post("/v1/interrupt", json!({"callId": "c-1"})).await.status.as_u16(), 202);
    // Nobody tells the holder; it asks by itself, with its next sign of life.
    running.abandoned().await;
    let events = there.stream(Send::get("/v1/calls/c-1/events")).await.rest().await;
    assert_eq!(events.last().expect("events").name, "call.interrupted");
}

#[tokio::test]
async fn a_new_call_takes_the_place_of_the_running_one_where_the_manifest_says_so() {
    let (model, mut asks) = Puppet::new();
    let settings = Settings { on_busy: OnBusy::Interrupt, ..Settings::default() };
    let agent = Setup { settings, ..Setup::with_model(model) }.start().await;
    let first = json!({"input": "first", "callId": "first", "stream": true});
    let mut stream = agent.stream(Send::post("/v1/calls").json(&first)).await;
    let running = asked(&mut asks).await;
    running.say("half ");
    stream.until("message.delta").await;
    agent.post("/v1/calls", background("second")).await.ok();
    running.abandoned().await;
    assert_eq!(stream.rest().await.last().expect("events").name, "call.interrupted");
    let second = asked(&mut asks).await;
    assert_eq!(second.heard, ["first", "half ", "second"]);
    second.reply("done");
}
