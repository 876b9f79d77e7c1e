//! The loop and its tools: side by side, bounded, and whatever becomes of one is told to the model.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use holdfast_sidecar::config::StopTimes;
use holdfast_sidecar::serve::Stop;
use holdfast_sidecar::session::Settings;
use holdfast_sidecar::state::{Block, ToolUse};
use holdfast_sidecar::store::{Limits, MemoryStore, Store};
use holdfast_sidecar::tools::{Safety, ToolCall, ToolOutput, ToolSpec, Tools};
use serde_json::{Map, Value, json};
use tokio::sync::Barrier;

use crate::kit::{SOON, Send, Setup};
use crate::parts::{Puppet, asked};

/// `meet` waits for another `meet`, `hang` for nobody, `crash` for nothing.
struct Troupe(Barrier);

#[async_trait]
impl Tools for Troupe {
    fn specs(&self) -> Arc<Vec<ToolSpec>> {
        let spec = |name: &str| ToolSpec {
            name: name.into(),
            description: String::new(),
            schema: serde_json::value::RawValue::from_string("{}".into()).expect("JSON").into(),
            safety: Safety::Unsafe,
        };
        Arc::new(["meet", "hang", "crash"].map(spec).into())
    }

    async fn run(&self, call: ToolCall<'_>) -> ToolOutput {
        match call.name {
            "meet" => {
                self.0.wait().await;
                ToolOutput::text("met")
            }
            "crash" => panic!("a tool that crashes, as it should"),
            _ => std::future::pending().await,
        }
    }
}

fn troupe() -> Arc<dyn Tools> {
    Arc::new(Troupe(Barrier::new(2)))
}

fn calls(names: &[&str]) -> Vec<Block> {
    let call = |(n, name): (usize, &&str)| {
        let input = Value::Object(Map::new());
        Block::ToolUse(ToolUse { id: format!("t{n}"), name: (*name).into(), input, extra: Map::new() })
    };
    names.iter().enumerate().map(call).collect()
}

#[tokio::test]
async fn tools_of_one_reply_run_side_by_side_and_each_end_is_a_result() {
    let (model, mut asks) = Puppet::new();
    let settings = Settings { tool_timeout: Duration::from_secs(1), ..Settings::default() };
    let agent = Setup { settings, tools: troupe(), ..Setup::with_model(model) }.start().await;
    agent.post("/v1/calls", json!({"input": "x", "callId": "c-1", "background": true})).await.ok();
    asked(&mut asks).await.reply_with(calls(&["meet", "hang", "crash", "meet", "vanish"]));
    asked(&mut asks).await.reply("done");
    let events = agent.stream(Send::get("/v1/calls/c-1/events")).await.rest().await;
    assert_eq!(events.last().expect("events").data["usage"]["toolCalls"], 5);
    let mut results: Vec<(String, bool, String)> = Vec::new();
    for message in agent.get("/v1/state").await.ok()["context"].as_array().expect("messages") {
        let block = &message["content"][0];
        if block["type"] == "tool_result" {
            let text = |value: &Value| value.as_str().expect("text").to_owned();
            let is_error = block["isError"] == true;
            results.push((text(&block["toolUseId"]), is_error, text(&block["content"][0]["text"])));
        }
    }
    results.sort();
    let expected = [
        (false, "met"),
        (true, "the tool did not answer within 1 s"),
        (true, "the tool crashed"),
        (false, "met"),
        (true, "there is no tool named \"vanish\""),
    ];
    assert_eq!(results.len(), expected.len());
    for (n, ((id, is_error, text), (wrong, begins))) in results.iter().zip(expected).enumerate() {
        assert_eq!((id.as_str(), *is_error), (format!("t{n}").as_str(), wrong), "{text}");
        assert!(text.starts_with(begins), "{text}");
    }
}

#[tokio::test]
async fn a_model_that_never_answers_is_asked_so_often_and_no_more() {
    let (model, mut asks) = Puppet::new();
    let settings = Settings { max_iterations: 2, ..Settings::default() };
    let agent = Setup { settings, tools: troupe(), ..Setup::with_model(model) }.start().await;
    agent.post("/v1/calls", json!({"input": "x", "callId": "c-1", "background": true})).await.ok();
    for _ in 0..2 {
        asked(&mut asks).await.reply_with(calls(&["meet", "meet"]));
    }
    let events = agent.stream(Send::get("/v1/calls/c-1/events")).await.rest().await;
    let call = &events.last().expect("events").data;
    assert_eq!((&call["status"], &call["error"]["type"]), (&json!("failed"), &json!("iterations-exceeded")));
    assert_eq!((&call["error"]["retryable"], &call["usage"]["toolCalls"]), (&json!(true), &json!(4)));
    assert!(asks.try_recv().is_err(), "it was asked once more");
    agent.post("/v1/calls", json!({"input": "y", "background": true})).await.ok();
    assert_eq!(asked(&mut asks).await.heard.len(), 8, "the history is one that a model can be sent");
}

/// A model that counts its calls anew in each reply is understood; a takeover in between makes no difference.
#[tokio::test]
async fn a_tool_call_id_that_comes_again_after_a_takeover_gets_a_new_one() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Limits::default()));
    let start = |store: &Arc<dyn Store>| {
        let (model, asks) = Puppet::new();
        let times = StopTimes { drain: Duration::ZERO, tools: SOON, save: SOON, relay: Duration::ZERO };
        let setup = Setup { store: Arc::clone(store), tools: troupe(), times, ..Setup::with_model(model) };
        async move { (setup.start().await, asks) }
    };
    let (old, mut asks) = start(&store).await;
    old.post("/v1/calls", json!({"input": "x", "callId": "c-1", "background": true})).await.ok();
    asked(&mut asks).await.reply_with(calls(&["meet", "meet"]));
    let between = asked(&mut asks).await;
    old.stop(Stop::Terminate).await;
    between.abandoned().await;
    old.ended().await;

    let (new, mut asks) = start(&store).await;
    asked(&mut asks).await.reply_with(calls(&["meet", "meet"]));
    asked(&mut asks).await.reply("done");
    let events = new.stream(Send::get("/v1/calls/c-1/events")).await.rest().await;
    let call = &events.last().expect("events").data;
    assert_eq!(
        (&call["status"], &call["resumes"], &call["usage"]["toolCalls"]),
        (&json!("completed"), &json!(1), &json!(4))
    );
    let state = new.get("/v1/state").await.ok();
    let mut ids = Vec::new();
    for block in state["context"]
        .as_array()
        .expect("messages")
        .iter()
        .flat_map(|m| m["content"].as_array().expect("blocks"))
    {
        ids.extend(block["id"].as_str().map(str::to_owned));
    }
    assert_eq!(ids.iter().collect::<std::collections::BTreeSet<_>>().len(), 4, "{ids:?}");
    new.send(Send::put("/v1/state").json(&state).header("if-match", "*")).await.ok();
}

/// What cannot be read back must not be asked for again and again.
#[tokio::test]
async fn a_reply_that_cannot_be_kept_is_asked_for_once() {
    let (model, mut asks) = Puppet::new();
    let agent = Setup { tools: troupe(), ..Setup::with_model(model) }.start().await;
    agent.post("/v1/calls", json!({"input": "x", "callId": "c-1", "background": true})).await.ok();
    let deep = (0..127).fold(json!(1), |inner, _| json!([inner]));
    let call = ToolUse { id: "t0".into(), name: "meet".into(), input: deep, extra: Map::new() };
    asked(&mut asks).await.reply_with(vec![Block::ToolUse(call)]);
    let events = agent.stream(Send::get("/v1/calls/c-1/events")).await.rest().await;
    assert_eq!(events.last().expect("events").data["error"]["type"], "model-malformed");
    assert!(asks.try_recv().is_err(), "it was asked once more");
    agent.post("/v1/calls", json!({"input": "y", "background": true})).await.ok();
    assert_eq!(asked(&mut asks).await.heard, ["x", "y"]);
}
