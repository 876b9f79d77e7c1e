//! The loop and its tools: side by side, bounded, and whatever becomes of one is told to the model.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use holdfast_sidecar::session::Settings;
use holdfast_sidecar::state::{Block, ToolUse};
use holdfast_sidecar::tools::{Safety, ToolCall, ToolOutput, ToolSpec, Tools};
use serde_json::{Map, Value, json};
use tokio::sync::Barrier;

use crate::kit::{Puppet, Send, Setup, asked};

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
