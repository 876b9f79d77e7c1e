//! Models over a real socket: what is sent, what is understood, what is tried again.

mod model_support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use holdfast_sidecar::model::{CallContext, Piece, from_manifest};
use holdfast_sidecar::state::{Block, Message, ToolResult, ToolUse};
use holdfast_tests::fake_model::{Answer, Ask, Ending, FakeModel, Reply, Seen};
use model_support::{Question, Vault, agent, model};
use serde_json::{Map, Value, json};

const PROVIDERS: [&str; 2] = ["OpenAI", "Anthropic"];

fn manifest(provider: &str, fake: &FakeModel) -> Value {
    json!({"provider": provider, "name": "fake-1", "baseUrl": fake.url(), "apiKeySecretRef": {"name": "llm", "key": "key"}})
}

/// Answers by turns, and with the last for ever.
fn in_turn(replies: Vec<Reply>) -> impl Fn(&Seen) -> Reply + Send + Sync {
    let next = AtomicUsize::new(0);
    move |_| replies[next.fetch_add(1, SeqCst).min(replies.len() - 1)].clone()
}

async fn fake(replies: Vec<Reply>) -> FakeModel {
    FakeModel::start(in_turn(replies)).await.expect("a fake model")
}

fn call(id: &str, name: &str, input: Value) -> ToolUse {
    ToolUse { id: id.into(), name: name.into(), input, extra: Map::new() }
}

#[tokio::test]
async fn a_text_comes_back_whole_and_word_by_word() {
    for provider in PROVIDERS {
        let fake = fake(vec![Reply::text("Hello there, friend.")]).await;
        let model = model(manifest(provider, &fake));
        let whole = Question::user("hi").ask(&model).await;
        assert_eq!(whole.text(), "Hello there, friend.", "{provider}");
        assert!(whole.pieces.is_empty());
        let streamed = Question::user("hi").streamed().ask(&model).await;
        assert_eq!(streamed.text(), "Hello there, friend.");
        let words = ["Hello ", "there, ", "friend."].map(|word| Piece::Text(word.into()));
        assert_eq!(streamed.pieces, words);
        for heard in [&whole, &streamed] {
            let usage = heard.reply().usage;
            assert_eq!((usage.input_tokens, usage.output_tokens), (1, 3), "{provider}: {usage:?}");
        }
        assert_eq!(fake.seen().iter().map(|seen| seen.stream).collect::<Vec<_>>(), [false, true]);
    }
}

#[tokio::test]
async fn parallel_tool_calls_are_put_together() {
    for provider in PROVIDERS {
        let asks = [("t1", "{\"n\":1,\"é\":\"ü\"}"), ("t2", "{\"n\":2}"), ("t3", "")];
        let tools = asks.map(|(id, arguments)| Ask {
            id: Some(id.into()),
            name: format!("f_{id}"),
            arguments: arguments.into(),
        });
        let answer = Answer {
            text: "Let me see.".into(),
            thinking: Some("hm".into()),
            tools: tools.to_vec(),
            ..Answer::default()
        };
        let fake = fake(vec![Reply::Say(answer)]).await;
        let model = model(manifest(provider, &fake));
        for question in [Question::user("go").tool("f_t1"), Question::user("go").tool("f_t1").streamed()] {
            let heard = question.ask(&model).await;
            let content = &heard.reply().content;
            assert!(
                matches!(&content[0], Block::Thinking { thinking, .. } if thinking == "hm"),
                "{provider}"
            );
            assert_eq!(content[1], Block::text("Let me see."));
            let calls = [
                call("t1", "f_t1", json!({"n": 1, "é": "ü"})),
                call("t2", "f_t2", json!({"n": 2})),
                call("t3", "f_t3", json!({})),
            ];
            // In one piece Anthropic's input is JSON already, so nothing is what an empty text becomes there.
            let expected = calls.map(Block::ToolUse);
            assert_eq!(content[2..4], expected[..2], "{provider}");
            if question.stream {
                assert_eq!(content[4], expected[2], "{provider}");
                assert_eq!(heard.watched(), "Let me see.", "thinking and arguments are not text");
            }
        }
    }
}

/// A conversation with everything in it.
fn long_story() -> Vec<Message> {
    let (first, second) = (call("t1", "lookup", json!({"order": 7})), call("t2", "photo", json!({})));
    let mut photo = ToolResult::new(&second, false, "one photo");
    photo.content.push(Block::Image {
        source: json!({"type": "base64", "media_type": "image/png", "data": "AAAA"}),
        extra: Map::new(),
    });
    vec![
        Message::user("refund order 7"),
        Message::assistant(vec![
            Block::Thinking {
                thinking: "hm".into(),
                extra: Map::from_iter([("signature".into(), json!("s=="))]),
            },
            Block::text("Looking."),
            Block::ToolUse(first.clone()),
            Block::ToolUse(second),
        ]),
        Message::tool(photo),
        Message::tool(ToolResult::new(&first, true, "not found")),
        Message::user("try again"),
        Message::user("please"),
    ]
}

#[tokio::test]
async fn openai_is_sent_the_conversation_in_its_words() {
    let fake = fake(vec![Reply::text("ok")]).await;
    let mut with = manifest("OpenAI", &fake);
    with["parameters"] =
        json!({"temperature": 0.5, "topP": 0.9, "maxTokens": 64, "stop": ["END"], "seed": 7});
    with["extraBody"] = json!({"top_k": 5, "temperature": 0.1, "messages": "mine", "stream": "mine"});
    with["extraHeaders"] = json!({"X-Team": "blue"});
    let model = model(with);
    let mut question = Question::new(long_story()).tool("lookup").streamed();
    question.system = Some("Be \"kind\".".into());
    question.context = Arc::new(CallContext {
        traceparent: Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into()),
        ..CallContext::default()
    });
    assert_eq!(question.ask(&model).await.text(), "ok");
    let seen = &fake.seen()[0];
    let body = &seen.body;
    assert_eq!(seen.headers["authorization"], "Bearer sk-test");
    assert_eq!(seen.headers["x-team"], "blue");
    assert_eq!(seen.headers["traceparent"], "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
    assert!(seen.headers.contains_key("content-length"), "{:?}", seen.headers);
    for (field, value) in [
        ("model", json!("fake-1")),
        ("temperature", json!(0.1)),
        ("top_p", json!(0.9)),
        ("top_k", json!(5)),
        ("max_tokens", json!(64)),
        ("stop", json!(["END"])),
        ("seed", json!(7)),
        ("stream", json!(true)),
        ("stream_options", json!({"include_usage": true})),
    ] {
        assert_eq!(body[field], value, "{field}");
    }
    let function = json!({
        "name": "lookup", "description": "The tool lookup",
        "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}},
    });
    assert_eq!(body["tools"], json!([{"type": "function", "function": function}]));
    assert_eq!(
        body["messages"],
        json!([
            {"role": "system", "content": "Be \"kind\"."},
            {"role": "user", "content": "refund order 7"},
            {"role": "assistant", "content": "Looking.", "tool_calls": [
                {"id": "t1", "type": "function", "function": {"name": "lookup", "arguments": "{\"order\":7}"}},
                {"id": "t2", "type": "function", "function": {"name": "photo", "arguments": "{}"}},
            ]},
            {"role": "tool", "tool_call_id": "t2", "content": "one photo\n[an image, shown after the tool results]"},
            {"role": "tool", "tool_call_id": "t1", "content": "Error: not found"},
            {"role": "user", "content": [
                {"type": "text", "text": "Images returned by the tool photo (call t2):"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
            ]},
            {"role": "user", "content": "try again"},
            {"role": "user", "content": "please"},
        ])
    );
}

#[tokio::test]
async fn anthropic_is_sent_the_conversation_in_its_words() {
    let fake = fake(vec![Reply::text("ok")]).await;
    let mut with = manifest("Anthropic", &fake);
    with["parameters"] = json!({"temperature": 0.5, "stop": ["END"], "seed": 7});
    with["extraBody"] = json!({"cache_control": {"type": "ephemeral"}});
    with["headersFrom"] = json!([{"name": "X-Gateway", "secretKeyRef": {"name": "llm", "key": "key"}}]);
    let model = model(with);
    let mut question = Question::new(long_story()).tool("lookup");
    question.system = Some("Be kind.".into());
    assert_eq!(question.ask(&model).await.text(), "ok");
    let seen = &fake.seen()[0];
    let body = &seen.body;
    assert_eq!(seen.path, "/v1/messages");
    assert_eq!(seen.headers["x-api-key"], "sk-test");
    assert_eq!(seen.headers["x-gateway"], "sk-test");
    assert_eq!(seen.headers["anthropic-version"], "2023-06-01");
    assert_eq!(body["max_tokens"], 8192, "the protocol requires one");
    assert_eq!(body["system"], "Be kind.");
    assert_eq!(body["stop_sequences"], json!(["END"]));
    assert_eq!(body["cache_control"], json!({"type": "ephemeral"}));
    assert!(body.get("seed").is_none() && body.get("stream").is_none());
    assert_eq!(body["tools"][0]["input_schema"]["type"], "object");
    assert_eq!(
        body["messages"],
        json!([
            {"role": "user", "content": [{"type": "text", "text": "refund order 7"}]},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "hm", "signature": "s=="},
                {"type": "text", "text": "Looking."},
                {"type": "tool_use", "id": "t1", "name": "lookup", "input": {"order": 7}},
                {"type": "tool_use", "id": "t2", "name": "photo", "input": {}},
            ]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "t2", "content": [
                    {"type": "text", "text": "one photo"},
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}]},
                {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "not found"}], "is_error": true},
                {"type": "text", "text": "try again"},
                {"type": "text", "text": "please"},
            ]},
        ])
    );
}

#[tokio::test]
async fn a_thousand_messages_arrive_as_they_are() {
    for provider in PROVIDERS {
        let fake = fake(vec![Reply::text("ok")]).await;
        let model = model(manifest(provider, &fake));
        let history = (0..1001).map(|n| match n % 2 {
            0 => Message::user(format!("question {n} {}", "x".repeat(if n == 500 { 40_000 } else { 400 }))),
            _ => Message::assistant(vec![Block::text(format!("answer {n}"))]),
        });
        let question = Question::new(history);
        for _ in 0..2 {
            assert_eq!(question.ask(&model).await.text(), "ok");
        }
        let seen = fake.seen();
        assert_eq!(seen[0].transcript.len(), 1001);
        for (n, turn) in seen[1].transcript.iter().enumerate() {
            let expected = if n % 2 == 0 {
                ("user", format!("question {n} "))
            } else {
                ("assistant", format!("answer {n}"))
            };
            assert!(
                turn.role == expected.0 && turn.text.starts_with(&expected.1),
                "{provider} {n}: {turn:?}"
            );
        }
        assert_eq!(seen[0].body, seen[1].body);
    }
}

#[tokio::test]
async fn overload_is_tried_again_and_retry_after_is_honoured() {
    for provider in PROVIDERS {
        let fake = fake(vec![
            Reply::refuse(429, "slow down").with_header("retry-after", "1"),
            Reply::refuse(529, "overloaded"),
            Reply::HangUp,
            Reply::text("there"),
        ])
        .await;
        let heard = Question::user("hi").streamed().ask(&model(manifest(provider, &fake))).await;
        assert_eq!(heard.text(), "there", "{provider}");
        assert_eq!(heard.resets(), 0, "nothing had been shown");
        let asked: Vec<u64> = fake
            .ledger()
            .records()
            .iter()
            .filter(|record| record["event"] == "asked")
            .filter_map(|record| record["at"].as_u64())
            .collect();
        assert!(asked[1] - asked[0] >= 1000, "it came back too early: {asked:?}");
        assert_eq!(fake.seen().len(), 4);
    }
}

#[tokio::test]
async fn a_stream_that_breaks_is_begun_again_and_says_so() {
    for provider in PROVIDERS {
        for ending in [Ending::CutAfter(2), Ending::ErrorAfter(2), Ending::GarbageAfter(2)] {
            let fake = fake(vec![
                Reply::text("never to be seen again").ending(ending),
                Reply::text("the whole answer"),
            ])
            .await;
            let heard = Question::user("hi").streamed().ask(&model(manifest(provider, &fake))).await;
            assert_eq!(heard.text(), "the whole answer", "{provider} {ending:?}");
            assert_eq!(heard.resets(), 1, "{provider} {ending:?}: {:?}", heard.pieces);
            assert_eq!(heard.watched(), "the whole answer");
            assert_eq!(heard.pieces[0], Piece::Text("never ".into()));
        }
    }
}

#[tokio::test]
async fn a_server_that_never_answers_is_given_up_in_time() {
    let fake = fake(vec![Reply::Silence, Reply::text("late but here")]).await;
    let mut with = manifest("OpenAI", &fake);
    with["requestTimeout"] = json!("200ms");
    assert_eq!(Question::user("hi").ask(&model(with)).await.text(), "late but here");
    let dead = FakeModel::start(|_| Reply::HangUp).await.expect("a fake");
    let heard = Question::user("hi").ask(&model(manifest("OpenAI", &dead))).await;
    assert_eq!(heard.error().kind(), "model-unavailable");
    assert_eq!(dead.seen().len(), 5, "bounded");
    let nobody = json!({"provider": "OpenAI", "name": "x", "baseUrl": "http://127.0.0.1:1/v1"});
    let heard = Question::user("hi").ask(&model(nobody)).await;
    assert!(heard.error().to_string().contains("refused"), "{}", heard.error());
}

#[tokio::test]
async fn a_provider_that_asks_for_more_patience_than_we_have_is_not_waited_for() {
    let fake = fake(vec![Reply::refuse(429, "come back tomorrow").with_header("retry-after", "86400")]).await;
    let start = Instant::now();
    let heard = Question::user("hi").ask(&model(manifest("OpenAI", &fake))).await;
    let holdfast_sidecar::model::ModelError::Unavailable { retry_after, .. } = heard.error() else {
        panic!("{:?}", heard.error())
    };
    assert_eq!(*retry_after, Some(Duration::from_secs(86400)));
    assert!(start.elapsed() < Duration::from_secs(5) && fake.seen().len() == 1);
}

#[tokio::test]
async fn refusals_are_final_and_sorted() {
    let overflow = "This model's maximum context length is 8192 tokens";
    for (status, message, kind) in [
        (400, "unknown field", "model-refused"),
        (404, "no such model", "model-refused"),
        (400, overflow, "context-too-long"),
        (413, "", "context-too-long"),
    ] {
        let fake = fake(vec![Reply::refuse(status, message), Reply::text("never")]).await;
        let heard = Question::user("hi").ask(&model(manifest("OpenAI", &fake))).await;
        assert_eq!(heard.error().kind(), kind, "{status} {message}");
        assert!(heard.error().to_string().contains(message));
        assert_eq!(fake.seen().len(), 1, "a refusal is not asked again");
    }
}

#[tokio::test]
async fn what_is_not_the_protocol_is_told_as_such() {
    let page = Reply::Raw { content_type: "text/html", body: "<html>Welcome to nginx</html>".into() };
    for provider in PROVIDERS {
        let fake = fake(vec![page.clone()]).await;
        let heard = Question::user("hi").streamed().ask(&model(manifest(provider, &fake))).await;
        assert_eq!(heard.error().kind(), "model-malformed", "{provider}");
        assert_eq!(fake.seen().len(), 2, "once more, in case it was a hiccup");
    }
    let lazy = json!({"choices": [{"message": {"content": "in one piece"}, "finish_reason": "stop"}]});
    let fake = fake(vec![Reply::Raw { content_type: "application/json", body: lazy.to_string() }]).await;
    let heard = Question::user("hi").streamed().ask(&model(manifest("OpenAI", &fake))).await;
    assert_eq!((heard.text().as_str(), heard.watched().as_str()), ("in one piece", "in one piece"));
}

#[tokio::test]
async fn a_rotated_key_is_found_and_no_key_is_ever_shown() {
    let fake = FakeModel::start(|seen| match seen.headers["authorization"].as_str() {
        "Bearer sk-new" => Reply::text("welcome"),
        other => Reply::refuse(401, &format!("Incorrect API key provided: {other}")),
    })
    .await
    .expect("a fake");
    let vault = Vault::default();
    vault.put("HOLDFAST_SECRET_LLM_KEY", "sk-old");
    let model = from_manifest(&agent(manifest("OpenAI", &fake)), &vault.secrets()).expect("a model");
    let refused = Question::user("hi").ask(&model).await;
    assert_eq!(refused.error().kind(), "model-refused");
    let shown = format!("{} {:?}", refused.error(), refused.error());
    assert!(shown.contains("Incorrect API key") && !shown.contains("sk-old"), "{shown}");
    assert_eq!(fake.seen().len(), 1, "the same key is not tried twice");
    vault.put("HOLDFAST_SECRET_LLM_KEY", "sk-new\n");
    assert_eq!(Question::user("hi").ask(&model).await.text(), "welcome");
    assert_eq!(fake.seen().len(), 3);
}

#[tokio::test]
async fn a_server_s_ways_are_learnt_once() {
    let fake = FakeModel::start(|seen| {
        if seen.body.get("stream_options").is_some() {
            return Reply::refuse(400, "Unrecognized request argument supplied: stream_options");
        }
        match seen.body.get("max_tokens") {
            Some(_) => Reply::refuse(
                400,
                "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
            ),
            None => Reply::text(format!("{}", seen.body["max_completion_tokens"])),
        }
    })
    .await
    .expect("a fake");
    let mut with = manifest("OpenAI", &fake);
    with["parameters"] = json!({"maxTokens": 5});
    let model = model(with);
    assert_eq!(Question::user("hi").streamed().ask(&model).await.text(), "5");
    assert_eq!(fake.seen().len(), 3);
    assert_eq!(Question::user("hi").streamed().ask(&model).await.text(), "5");
    assert_eq!(fake.seen().len(), 4, "it remembered");
}

#[tokio::test]
async fn connections_are_kept_and_a_dropped_question_lets_go_of_its_own() {
    let fake = FakeModel::start(|_| {
        Reply::Say(Answer {
            text: "w ".repeat(1000),
            token_delay: Duration::from_millis(20),
            ..Answer::default()
        })
    })
    .await
    .expect("a fake");
    let model = model(manifest("OpenAI", &fake));
    let question = Question::user("hi").streamed();
    let abandoned = tokio::time::timeout(Duration::from_millis(200), question.ask(&model)).await;
    assert!(abandoned.is_err());
    for _ in 0..100 {
        if let Some(end) = fake.ledger().records().iter().find(|record| record["event"] == "answered") {
            assert_eq!(end["outcome"], "gone", "the server saw the connection close");
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the provider was left talking: {:?}", fake.ledger().records());
}
