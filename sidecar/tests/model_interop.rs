//! Our providers against a model server that others wrote, as it is published: npm's @copilotkit/aimock.

mod model_support;

use std::process::Command;

use holdfast_sidecar::state::{Block, Message, ToolResult, ToolUse};
use holdfast_tests::unmodified::{Server, npm, or_skip};
use model_support::{Question, model};
use serde_json::json;

fn fixtures() -> serde_json::Value {
    json!({"fixtures": [
        {"match": {"userMessage": "hello"}, "response": {"content": "Hello! How can I help you today?"}},
        {"match": {"userMessage": "weather", "hasToolResult": false}, "response": {
            "toolCalls": [{"name": "get_weather", "arguments": {"city": "Ulm"}}, {"name": "get_time", "arguments": {}}]}},
        {"match": {"userMessage": "weather", "hasToolResult": true}, "response": {"content": "Rain, as ever."}},
        {"match": {"userMessage": "broken"}, "response": {"error": {"message": "Bad request", "type": "invalid_request_error"}, "status": 400}},
    ]})
}

#[tokio::test]
async fn text_tools_and_errors_of_both_protocols() {
    let Some(package) = or_skip(npm("@copilotkit/aimock", "1.43.0")) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("fixtures.json");
    std::fs::write(&file, fixtures().to_string()).expect("written");
    let server = Server::start(|port| {
        let mut command = Command::new("node");
        command.arg(package.join("dist/cli.js")).args([
            "--strict",
            "--log-level",
            "silent",
            "--port",
            &port.to_string(),
        ]);
        command.arg("--fixtures").arg(&file);
        command
    })
    .await
    .expect("a server");
    for provider in ["OpenAI", "Anthropic"] {
        let base = format!("http://{}/v1", server.address);
        let model = model(
            json!({"provider": provider, "name": "gpt-4o", "baseUrl": base, "apiKeySecretRef": {"name": "llm", "key": "key"}}),
        );
        for stream in [false, true] {
            let ask = |history: Vec<Message>| {
                let mut question = Question::new(history).tool("get_weather").tool("get_time");
                question.stream = stream;
                question
            };
            let hello = ask(vec![Message::user("hello")]).ask(&model).await;
            assert_eq!(hello.text(), "Hello! How can I help you today?", "{provider}, stream: {stream}");
            assert!(!stream || hello.pieces.len() > 1, "in pieces: {:?}", hello.pieces);

            let mut history = vec![Message::user("how is the weather?")];
            let called = ask(history.clone()).ask(&model).await;
            let calls: Vec<ToolUse> = called
                .reply()
                .content
                .iter()
                .filter_map(|block| match block {
                    Block::ToolUse(call) => Some(call.clone()),
                    _ => None,
                })
                .collect();
            let names: Vec<_> = calls.iter().map(|call| (call.name.as_str(), call.input.clone())).collect();
            assert_eq!(names, [("get_weather", json!({"city": "Ulm"})), ("get_time", json!({}))]);
            history.push(Message::assistant(called.reply().content.clone()));
            history.extend(calls.iter().map(|call| Message::tool(ToolResult::new(call, false, "rain"))));
            assert_eq!(
                ask(history).ask(&model).await.text(),
                "Rain, as ever.",
                "{provider}, stream: {stream}"
            );

            let broken = ask(vec![Message::user("broken")]).ask(&model).await;
            assert_eq!(broken.error().kind(), "model-refused", "{provider}, stream: {stream}");
        }
    }
}
