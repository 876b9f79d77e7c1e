//! Traces as a collector sees them: real processes, spans decoded from the wire.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use holdfast_tests::fake_collector::{FakeCollector, Span, the};
use holdfast_tests::fake_model::{FakeModel, obey};
use holdfast_tests::fake_tools::{FakeTools, tool};
use holdfast_tests::http::Http;
use holdfast_tests::redis::{Options, RedisServer};
use holdfast_tests::replica::Replica;
use hyper::Method;
use serde_json::{Value, json};

const CALLER: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const SECRET: &str = "my card is 4111";
/// What the grace period leaves after everything that has a time of its own.
const MARGIN: Duration = Duration::from_secs(5);

/// Spans are kept until the process ends, so that nothing but its last word can bring them.
fn sends_last(collector: &FakeCollector) -> Vec<(&'static str, String)> {
    vec![("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url()), ("OTEL_BSP_SCHEDULE_DELAY", "600000".into())]
}

struct Bench {
    folder: tempfile::TempDir,
    collector: FakeCollector,
    model: FakeModel,
    tools: FakeTools,
    http: Http,
}

impl Bench {
    async fn new(store: &str) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let model = FakeModel::start(obey).await?;
        let tools = FakeTools::start([tool("refund", &[], &json!({}))]).await?;
        let manifest = format!(
            "apiVersion: holdfast.dev/v1alpha1
kind: Agent
metadata: {{ name: shop }}
spec:
  model: {{ provider: OpenAI, name: fake-1, baseUrl: {}, parameters: {{ temperature: 0.5, maxTokens: 64 }} }}
  tools: [{{ name: crm, mcp: {{ url: {} }} }}]
  stateStore: {store}
  shutdown: {{ preStopDelay: 0s, drainTimeout: 0s }}
",
            model.url(),
            tools.url()
        );
        std::fs::write(folder.path().join("agent.yaml"), manifest)?;
        Ok(Self { folder, collector: FakeCollector::start().await?, model, tools, http: Http::default() })
    }

    async fn replica(&self, name: &str, env: &[(&'static str, String)]) -> Result<Replica> {
        let env: Vec<_> = env.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let folder: &Path = self.folder.path();
        Replica::start(folder, name, &folder.join("agent.yaml"), &env).await
    }
}

fn attribute<'a>(span: &'a Span, name: &str) -> &'a Value {
    span.attributes.get(name).unwrap_or(&Value::Null)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_is_a_trace_with_the_names_of_the_conventions_and_without_what_was_said() -> Result<()> {
    let bench = Bench::new("{ type: InMemory }").await?;
    let mut env = sends_last(&bench.collector);
    env.push(("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=team-a".into()));
    let mut replica = bench.replica("one", &env).await?;
    let url = format!("{}/v1/users/alice/sessions/s1/calls", replica.url);
    let body = json!({
        "input": format!("{SECRET} #{{\"tools\":[{{\"name\":\"refund\",\"input\":{{\"note\":\"{SECRET}\"}}}}]}}"),
        "callId": "c-1", "context": {"requestId": "r-1", "attributes": {"tenant": "t-7"}},
    });
    let headers = [("traceparent", CALLER), ("tracestate", "vendor=x")];
    let answer = bench.http.send(Method::POST, &url, Some(&body), &headers).await?;
    ensure!(answer.body["status"] == "completed", "{answer:?}");
    replica.signal("TERM")?;
    ensure!(replica.ended(Duration::from_secs(20)).await?.success());

    let spans = bench.collector.spans();
    let caller: Vec<&str> = CALLER.split('-').collect();
    ensure!(spans.len() == 5 && spans.iter().all(|span| span.trace == caller[1]), "{spans:#?}");
    let request = the(&spans, "POST /v1/calls")?;
    assert_eq!((request.parent.as_str(), request.kind), (caller[2], 2), "a server's, joined to its caller's");
    assert_eq!(attribute(request, "http.response.status_code"), 200);
    let agent = the(&spans, "invoke_agent shop")?;
    assert_eq!(agent.parent, request.id);
    for (name, value) in [
        ("gen_ai.operation.name", json!("invoke_agent")),
        ("gen_ai.provider.name", json!("openai")),
        ("gen_ai.agent.name", json!("shop")),
        ("gen_ai.conversation.id", json!("s1")),
        ("gen_ai.request.model", json!("fake-1")),
        ("user.id", json!("alice")),
        ("holdfast.call.id", json!("c-1")),
        ("holdfast.request.id", json!("r-1")),
        ("holdfast.call.attribute.tenant", json!("t-7")),
        ("holdfast.call.outcome", json!("completed")),
        ("gen_ai.usage.input_tokens", answer.body["usage"]["inputTokens"].clone()),
        ("gen_ai.usage.output_tokens", answer.body["usage"]["outputTokens"].clone()),
    ] {
        assert_eq!(*attribute(agent, name), value, "{name}");
    }
    let chats: Vec<_> = spans.iter().filter(|span| span.name == "chat fake-1").collect();
    assert_eq!(chats.len(), 2);
    for (chat, finish) in chats.iter().zip(["tool_call", "stop"]) {
        assert_eq!((chat.parent.as_str(), chat.kind), (agent.id.as_str(), 3), "a client's");
        for (name, value) in [
            ("gen_ai.operation.name", json!("chat")),
            ("gen_ai.request.temperature", json!(0.5)),
            ("gen_ai.request.max_tokens", json!(64)),
            ("gen_ai.response.finish_reasons", json!([finish])),
            ("server.address", json!("127.0.0.1")),
        ] {
            assert_eq!(*attribute(chat, name), value, "{name}");
        }
        assert!(attribute(chat, "gen_ai.usage.output_tokens").as_i64() > Some(0));
    }
    let ran = the(&spans, "execute_tool refund")?;
    assert_eq!(ran.parent, agent.id);
    assert_eq!(attribute(ran, "gen_ai.tool.name"), "refund");
    assert_eq!(*attribute(ran, "gen_ai.tool.call.id"), answer.body["messages"][0]["content"][0]["id"]);

    // Whoever was asked on the way was told where in the trace it is.
    let place = |span: &Span| format!("00-{}-{}-01", span.trace, span.id);
    let asked: Vec<_> = bench.model.seen().iter().map(|seen| seen.headers["traceparent"].clone()).collect();
    assert_eq!(asked, [place(chats[0]), place(chats[1])]);
    assert_eq!(bench.model.seen()[0].headers["tracestate"], "vendor=x");
    assert_eq!(bench.tools.executions("refund")[0]["meta"]["traceparent"], place(ran));

    let resource = &agent.resource;
    assert_eq!(
        (&resource["service.name"], &resource["service.instance.id"]),
        (&json!("shop"), &json!("one"))
    );
    assert_eq!(bench.collector.headers()[0]["x-tenant"], "team-a");
    assert!(!format!("{spans:?}").contains(SECRET), "what was said is nobody's business: {spans:#?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trace_survives_a_takeover_and_shows_what_was_said_where_it_was_asked_for() -> Result<()> {
    let redis = RedisServer::start(Options::default())?;
    let bench = Bench::new(&format!("{{ type: Redis, redis: {{ url: \"{}\" }} }}", redis.url())).await?;
    let mut env = sends_last(&bench.collector);
    env.push(("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "true".into()));
    let mut old = bench.replica("old", &env).await?;
    let said = json!({"input": format!("{SECRET} #{{\"delayMs\":1500}}"), "callId": "c-1", "background": true,
                      "context": {"requestId": "r-9"}});
    bench.http.post(&format!("{}/v1/calls", old.url), &said).await?;
    while bench.model.seen().is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let mut new = bench.replica("new", &env).await?;
    old.signal("TERM")?;
    ensure!(old.ended(Duration::from_secs(20)).await?.success());
    let given_back = bench.collector.spans();
    let first = the(&given_back, "invoke_agent shop")?;
    assert_eq!(attribute(first, "holdfast.call.outcome"), "suspended");

    let found = json!({"input": said["input"], "callId": "c-1"});
    let answer = bench.http.post(&format!("{}/v1/calls", new.url), &found).await?;
    assert_eq!((answer.status, &answer.body["resumes"]), (200, &json!(1)), "{answer:?}");
    new.signal("TERM")?;
    ensure!(new.ended(Duration::from_secs(20)).await?.success());
    let log = new.log_tail();
    let line = log.lines().find(|line| line.contains("goes on with a call of another run")).expect("a line");
    for part in
        ["\"call\":\"c-1\"", "\"request\":\"r-9\"", "\"replica\":\"new\"", "\"session\":", &first.trace]
    {
        ensure!(line.contains(part), "{part} is not in {line}");
    }
    ensure!(!log.contains(SECRET), "what was said is in the log: {log}");
    let spans = bench.collector.spans();
    let runs: Vec<_> = spans.iter().filter(|span| span.name == "invoke_agent shop").collect();
    assert_eq!(runs.len(), 2, "{spans:#?}");
    let [before, after] = [runs[0], runs[1]];
    assert_eq!((&after.trace, &after.parent), (&before.trace, &before.parent), "one call, one trace");
    assert_eq!(attribute(after, "holdfast.call.resumes"), 1);
    assert_eq!(attribute(after, "holdfast.replica"), "new");
    assert_eq!(attribute(after, "holdfast.call.outcome"), "completed");
    let chat = spans.iter().find(|span| span.parent == after.id).expect("a reply");
    assert!(attribute(chat, "gen_ai.input.messages").as_str().is_some_and(|text| text.contains(SECRET)));
    assert!(attribute(chat, "gen_ai.output.messages").as_str().is_some_and(|text| text.contains(SECRET)));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_that_does_not_answer_delays_nobody() -> Result<()> {
    let silent = FakeCollector::answering(Duration::from_secs(600)).await?;
    let bench = Bench::new("{ type: InMemory }").await?;
    let mut replica = bench.replica("one", &sends_last(&silent)).await?;
    let answer = bench.http.post(&format!("{}/v1/calls", replica.url), &json!({"input": "hello"})).await?;
    ensure!(answer.body["status"] == "completed", "{answer:?}");
    let stopped = Instant::now();
    replica.signal("TERM")?;
    ensure!(replica.ended(Duration::from_secs(20)).await?.success());
    ensure!(stopped.elapsed() < MARGIN, "it waited {:?} for its spans", stopped.elapsed());
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_an_endpoint_the_caller_s_place_goes_through_untouched() -> Result<()> {
    let bench = Bench::new("{ type: InMemory }").await?;
    let off = [("OTEL_EXPORTER_OTLP_ENDPOINT", bench.collector.url()), ("OTEL_SDK_DISABLED", "true".into())];
    let replica = bench.replica("one", &off).await?;
    let url = format!("{}/v1/calls", replica.url);
    let mut expected = Vec::new();
    for (given, shown) in [(CALLER, Some(CALLER)), ("00-not-a-place-01", None)] {
        let headers = [("traceparent", given)];
        bench.http.send(Method::POST, &url, Some(&json!({"input": "hello"})), &headers).await?;
        expected.push(shown.map(str::to_owned));
    }
    let seen: Vec<_> =
        bench.model.seen().iter().map(|seen| seen.headers.get("traceparent").cloned()).collect();
    assert_eq!(seen, expected);
    assert_eq!(bench.collector.spans(), []);
    Ok(())
}
