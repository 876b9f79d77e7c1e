//! Tools over a real socket: what is offered, what is sent, and what a failing server fails.

// A `json!` is written where it is used.
#![allow(clippy::needless_pass_by_value)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast_crds::Agent;
use holdfast_sidecar::model::CallContext;
use holdfast_sidecar::secrets::Secrets;
use holdfast_sidecar::state::{Block, Id, Slot};
use holdfast_sidecar::tools::{Caller, Safety, ToolCall, ToolOutput, Tools, from_manifest};
use holdfast_tests::fake_tools::{FakeTools, tool};
use serde_json::{Value, json};

fn agent(tools: Value) -> Agent {
    let manifest = json!({
        "apiVersion": "holdfast.dev/v1alpha1", "kind": "Agent", "metadata": {"name": "test"},
        "spec": {"model": {"provider": "OpenAI", "name": "x"}, "tools": tools},
    });
    serde_json::from_value(manifest).expect("a manifest")
}

fn secrets() -> Secrets {
    Secrets::new(None, None, |name| {
        (name == "HOLDFAST_SECRET_CRM_TOKEN").then(|| "Bearer let-me-in".to_owned())
    })
}

async fn connected(tools: Value) -> Arc<dyn Tools> {
    let tools = from_manifest(&agent(tools), &secrets(), None).expect("tools");
    tools.settle().await;
    tools
}

async fn run(tools: &Arc<dyn Tools>, name: &str, input: &Value) -> ToolOutput {
    run_with(tools, name, input, &Arc::default()).await
}

async fn run_with(
    tools: &Arc<dyn Tools>,
    name: &str,
    input: &Value,
    context: &Arc<CallContext>,
) -> ToolOutput {
    let (slot, call) = (Slot::new(None, "s").expect("a slot"), Id::new("call", "c").expect("an id"));
    let caller = Caller { slot: &slot, call: &call, fence: 1 };
    tools.run(ToolCall { id: "t1", name, input, idempotency_key: "key-1", caller, context }).await
}

fn said(output: &ToolOutput) -> String {
    output.content.iter().filter_map(Block::as_text).collect()
}

fn names(tools: &Arc<dyn Tools>) -> Vec<String> {
    tools.specs().iter().map(|spec| spec.name.clone()).collect()
}

async fn shop() -> FakeTools {
    let tools = [
        tool("lookup", &[], &json!({"readOnlyHint": true})),
        tool("put", &[], &json!({"idempotentHint": true})),
        tool("refund", &["order"], &json!({})),
        tool("secret", &[], &json!({})),
        tool("zap", &[], &json!({"readOnlyHint": true})),
    ];
    FakeTools::start(tools).await.expect("a fake server")
}

#[tokio::test]
async fn all_pages_are_listed_the_allowed_are_offered_and_classed() {
    let fake = shop().await;
    let class = |tools: &Arc<dyn Tools>, name: &str| {
        tools.specs().iter().find(|spec| spec.name == name).map(|spec| spec.safety)
    };
    let everything = connected(json!([{"name": "crm", "mcp": {"url": fake.url()}}])).await;
    assert_eq!(names(&everything), ["todo_write", "lookup", "put", "refund", "secret", "zap"]);
    assert_eq!(class(&everything, "lookup"), Some(Safety::Unsafe), "hints count only where they are trusted");
    let trusted = connected(json!([{
        "name": "crm", "mcp": {"url": fake.url(), "allow": ["lookup", "put", "refund", "zap"], "trustAnnotations": true},
        "safety": {"zap": "Unsafe", "refund": "Idempotent"},
    }]))
    .await;
    assert_eq!(names(&trusted), ["todo_write", "lookup", "put", "refund", "zap"]);
    let expected = [
        ("lookup", Safety::ReadOnly),
        ("put", Safety::Idempotent),
        ("refund", Safety::Idempotent),
        ("zap", Safety::Unsafe),
    ];
    for (name, safety) in expected {
        assert_eq!(class(&trusted, name), Some(safety), "{name}");
    }
    let refused = run(&trusted, "secret", &json!({})).await;
    assert!(refused.is_error && fake.executions("secret").is_empty(), "{refused:?}");
}

#[tokio::test]
async fn a_call_carries_its_key_and_context_and_brings_blocks_back() {
    let fake = shop().await;
    for by_events in [false, true] {
        if by_events {
            fake.answer_by_events();
        }
        let tools = connected(json!([{"name": "crm", "mcp": {"url": fake.url()}}])).await;
        let context = Arc::new(CallContext {
            request_id: Some("r-1".into()),
            attributes: [("tenant".to_owned(), json!("t-7"))].into(),
            traceparent: Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into()),
            tracestate: Some("vendor=x".into()),
        });
        let output =
            run_with(&tools, "refund", &json!({"order": 7, "say": "done", "image": true}), &context).await;
        assert!(!output.is_error);
        assert_eq!(output.content[0], Block::text("done"));
        assert!(
            matches!(&output.content[1], Block::Image { source, .. } if source["mediaType"] == "image/png")
        );
        let execution = fake.executions("refund").pop().expect("an execution");
        assert_eq!(execution["arguments"], json!({"order": 7, "say": "done", "image": true}));
        assert_eq!(execution["idempotencyKey"], "key-1", "as a header");
        let meta = &execution["meta"];
        assert_eq!(meta["holdfast.dev/idempotency-key"], "key-1");
        assert_eq!(meta["holdfast.dev/request-id"], "r-1");
        assert_eq!(meta["holdfast.dev/attributes"], json!({"tenant": "t-7"}));
        assert_eq!(meta["traceparent"], "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
        assert_eq!(meta["tracestate"], "vendor=x");
    }
    assert_eq!(fake.executions("refund").len(), 2);
}

#[tokio::test]
async fn what_cannot_be_called_is_an_error_and_no_execution() {
    let fake = shop().await;
    let tools = connected(json!([{"name": "crm", "mcp": {"url": fake.url()}}])).await;
    for (input, words) in [
        (json!({}), "missing: order"),
        (json!("{\"order\":"), "not a JSON object"),
        (json!([7]), "not a JSON object"),
    ] {
        let output = run(&tools, "refund", &input).await;
        assert!(output.is_error && said(&output).contains(words), "{output:?}");
    }
    assert!(said(&run(&tools, "invented", &json!({})).await).contains("there is no tool"));
    assert!(fake.executions("refund").is_empty());
    let failed = run(&tools, "refund", &json!({"order": 7, "fail": "out of stock"})).await;
    assert!(failed.is_error);
    assert_eq!(said(&failed), "out of stock");
}

#[tokio::test]
async fn a_list_that_changes_is_read_again() {
    let fake = shop().await;
    let tools = connected(json!([{"name": "crm", "mcp": {"url": fake.url()}}])).await;
    let before = tools.specs();
    assert!(Arc::ptr_eq(&before, &tools.specs()), "the same list is not made twice");
    // The stream of changes is opened after the handshake; a change before that is found by the next look.
    for n in 0..100 {
        fake.add(tool(&format!("brand_new_{n}"), &[], &json!({})));
        tokio::time::sleep(Duration::from_millis(50)).await;
        if names(&tools).iter().any(|name| name.starts_with("brand_new")) {
            assert!(!run(&tools, "brand_new_0", &json!({})).await.is_error);
            return;
        }
    }
    panic!("the new tool was never offered: {:?}", names(&tools));
}

#[tokio::test]
async fn two_servers_with_one_name_are_told_apart() {
    let (first, second) = (shop().await, shop().await);
    let tools = connected(json!([
        {"name": "crm", "mcp": {"url": first.url(), "allow": ["lookup"]}},
        {"name": "wiki", "mcp": {"url": second.url(), "allow": ["lookup", "zap"]}},
    ]))
    .await;
    assert_eq!(names(&tools), ["todo_write", "lookup", "wiki__lookup", "zap"]);
    run(&tools, "lookup", &json!({})).await;
    run(&tools, "wiki__lookup", &json!({})).await;
    run(&tools, "wiki__lookup", &json!({})).await;
    assert_eq!((first.executions("lookup").len(), second.executions("lookup").len()), (1, 2));
}

#[tokio::test]
async fn a_dead_server_fails_its_tools_and_nothing_else() {
    let fake = shop().await;
    let start = Instant::now();
    let tools = connected(json!([
        {"name": "dead", "mcp": {"url": "http://127.0.0.1:1/mcp"}},
        {"name": "crm", "mcp": {"url": fake.url()}},
    ]))
    .await;
    assert!(start.elapsed() < Duration::from_secs(5), "start-up waited for the dead: {:?}", start.elapsed());
    assert!(!run(&tools, "lookup", &json!({})).await.is_error);
    let url = fake.url();
    let address = fake.address;
    drop(fake);
    let output = run(&tools, "refund", &json!({"order": 7})).await;
    assert!(output.is_error && said(&output).contains("\"crm\""), "{output:?}");
    assert!(names(&tools).contains(&"refund".to_owned()), "what it offered stays on offer");
    let listener = tokio::net::TcpListener::bind(address).await.expect("the same port");
    let again = FakeTools::serve(
        listener,
        [tool("refund", &["order"], &json!({}))],
        holdfast_tests::ledger::Ledger::in_memory(),
    )
    .expect("a fake server");
    assert_eq!(again.url(), url);
    for _ in 0..100 {
        if !run(&tools, "refund", &json!({"order": 7})).await.is_error {
            assert_eq!(again.executions("refund").len(), 1);
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("it never came back");
}

#[tokio::test]
async fn a_connection_that_breaks_under_a_tool_is_told_and_not_repeated() {
    let fake = shop().await;
    for by_events in [false, true] {
        if by_events {
            fake.answer_by_events();
        }
        let tools = connected(json!([{"name": "crm", "mcp": {"url": fake.url()}}])).await;
        let before = fake.executions("refund").len();
        let start = Instant::now();
        let output = run(&tools, "refund", &json!({"order": 7, "hangUp": true})).await;
        assert!(output.is_error && said(&output).contains("may or may not have taken effect"), "{output:?}");
        assert!(start.elapsed() < Duration::from_secs(5));
        assert_eq!(
            fake.executions("refund").len(),
            before + 1,
            "an execution that may have happened is not repeated"
        );
    }
}

#[tokio::test]
async fn a_forgotten_session_is_made_anew() {
    let fake = shop().await;
    let tools = connected(json!([{"name": "crm", "mcp": {"url": fake.url()}}])).await;
    for _ in 0..2 {
        fake.forget_sessions();
        let output = run(&tools, "lookup", &json!({})).await;
        assert!(!output.is_error, "{output:?}");
    }
    assert_eq!(fake.executions("lookup").len(), 2);
}

#[tokio::test]
async fn a_dropped_call_is_cancelled() {
    let fake = shop().await;
    let tools = connected(json!([{"name": "crm", "mcp": {"url": fake.url()}}])).await;
    let slow = json!({"order": 7, "delayMs": 20_000});
    assert!(tokio::time::timeout(Duration::from_millis(300), run(&tools, "refund", &slow)).await.is_err());
    let executed = fake.executions("refund").pop().expect("it had begun");
    for _ in 0..100 {
        let cancelled = fake.ledger().records().into_iter().find(|record| record["event"] == "cancelled");
        if let Some(record) = cancelled {
            assert_eq!(record["request"], executed["request"]);
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("nobody told the server: {:?}", fake.ledger().records());
}

#[tokio::test]
async fn calls_run_at_the_same_time() {
    let fake = shop().await;
    let tools = connected(json!([{"name": "crm", "mcp": {"url": fake.url()}}])).await;
    let start = Instant::now();
    let slow = json!({"delayMs": 300});
    let outputs = futures::future::join_all((0..40).map(|_| run(&tools, "lookup", &slow))).await;
    assert!(outputs.iter().all(|output| !output.is_error));
    assert!(start.elapsed() < Duration::from_secs(3), "one after the other: {:?}", start.elapsed());
}

#[tokio::test]
async fn headers_from_secrets_open_the_door() {
    let fake = shop().await;
    fake.let_in_only("Bearer let-me-in");
    let header = json!([{"name": "Authorization", "secretKeyRef": {"name": "crm", "key": "token"}}]);
    let tools = connected(json!([{"name": "crm", "mcp": {"url": fake.url(), "headersFrom": header}}])).await;
    assert!(!run(&tools, "lookup", &json!({})).await.is_error);
    let shut_out = connected(json!([{"name": "crm", "mcp": {"url": fake.url()}}])).await;
    assert_eq!(names(&shut_out), ["todo_write"]);
}
