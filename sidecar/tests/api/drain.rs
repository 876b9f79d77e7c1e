//! Stopping without dropping anybody: in steps, each with its end, and never early.

use std::sync::Arc;
use std::time::Duration;

use holdfast_sidecar::config::StopTimes;
use holdfast_sidecar::serve::Stop;
use holdfast_sidecar::session::Settings;
use holdfast_sidecar::store::{Limits, MemoryStore, Store};
use serde_json::json;
use tokio::sync::mpsc;

use crate::kit::{Replica, SOON, Send, Setup, check_whole, send, soon};
use crate::parts::{Asked, Puppet, Slow, asked, slow_call};

const NOW: Duration = Duration::ZERO;
const AT_ONCE: StopTimes = StopTimes { drain: NOW, tools: SOON, save: SOON, relay: SOON };

fn named(replica: &str) -> Settings {
    Settings { replica: replica.into(), lease: Limits::default().lease, ..Settings::default() }
}

/// Two replicas of one agent, each with a model of its own.
async fn pair(times: StopTimes) -> (Replica, Asks, Replica, Asks) {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Limits::default()));
    let start = |name: &'static str| {
        let (model, asks) = Puppet::new();
        let setup =
            Setup { store: Arc::clone(&store), settings: named(name), times, ..Setup::with_model(model) };
        async move { (setup.start().await, asks) }
    };
    let (old, old_asks) = start("old").await;
    let (new, new_asks) = start("new").await;
    (old, old_asks, new, new_asks)
}

async fn connections_close(agent: &Replica) {
    soon("connections to be closed", async {
        while agent.get("/openapi.json").await.header("connection") != Some("close") {}
    })
    .await;
}

async fn nothing_new_starts(agent: &Replica) {
    soon("the closed door", async {
        while agent.platform(http::Method::GET, "/readyz").await.status.as_u16() != 503 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

type Asks = mpsc::UnboundedReceiver<Asked>;

fn streamed(call: &str) -> Send {
    Send::post("/v1/calls").json(&json!({"input": "x", "stream": true, "callId": call}))
}

#[tokio::test]
async fn calls_go_on_and_start_while_it_drains_and_it_ends_with_the_last() {
    let (model, mut asks) = Puppet::new();
    let agent = Setup::with_model(model).start().await;
    let first = agent.stream(streamed("c-1")).await;
    let running = asked(&mut asks).await;
    agent.stop(Stop::Terminate).await;
    connections_close(&agent).await;
    assert_eq!(
        agent.platform(http::Method::GET, "/readyz").await.status.as_u16(),
        200,
        "still better than nobody"
    );
    let address = agent.address;
    let second = tokio::spawn(async move {
        let ask = Send::post("/v1/sessions/other/calls").json(&json!({"input": "y"}));
        send(address, ask).await
    });
    asked(&mut asks).await.reply("late but taken");
    let second = soon("the late call", second).await.expect("answered");
    assert_eq!(second.ok()["text"], "late but taken");
    assert_eq!(second.header("connection"), Some("close"));
    assert!(!agent.running.is_finished(), "it ended before its last call");
    running.say("all ");
    running.reply("all of it");
    let events = first.rest().await;
    assert_eq!(events.last().map(|event| event.name.as_str()), Some("call.completed"));
    agent.ended().await;
}

#[tokio::test]
async fn a_call_in_the_background_is_waited_for_like_any_other() {
    let (model, mut asks) = Puppet::new();
    let agent = Setup::with_model(model).start().await;
    agent.post("/v1/calls", json!({"input": "x", "background": true})).await.ok();
    let running = asked(&mut asks).await;
    agent.stop(Stop::Terminate).await;
    // Nobody is connected, and for longer than the quiet after which a replica without calls is gone.
    let hung_up = tokio::time::timeout(Duration::from_millis(500), running.abandoned()).await;
    assert!(hung_up.is_err() && !agent.running.is_finished(), "it ended before its last call");
    running.reply("done");
    agent.ended().await;
}

#[tokio::test]
async fn another_replica_goes_on_and_the_client_notices_nothing() {
    let (old, mut old_asks, new, mut new_asks) = pair(AT_ONCE).await;
    let mut stream = old.stream(streamed("c-1")).await;
    let plain = tokio::spawn({
        let ask = Send::post("/v1/sessions/plain/calls").json(&json!({"input": "y", "callId": "c-2"}));
        let address = old.address;
        async move { send(address, ask).await }
    });
    let (one, two) = (asked(&mut old_asks).await, asked(&mut old_asks).await);
    one.say("half an ");
    two.say("half an ");
    let mut events = vec![stream.until("message.delta").await];
    old.stop(Stop::Terminate).await;
    one.abandoned().await;
    two.abandoned().await;
    for _ in 0..2 {
        let again = asked(&mut new_asks).await;
        assert!(!old.running.is_finished(), "it hung up on its clients");
        again.say("whole answer");
        again.reply("whole answer");
    }
    events.extend(stream.rest().await);
    let names: Vec<_> = events.iter().map(|event| event.name.as_str()).collect();
    assert!(names.contains(&"call.suspended") && names.contains(&"message.reset"), "{names:?}");
    let resumed = events.iter().find(|event| event.name == "call.resumed").expect("resumed");
    assert_eq!(resumed.data["replica"], "new");
    check_whole(&events);
    assert_eq!(events.last().expect("events").data["resumes"], 1);
    let plain = soon("the plain call", plain).await.expect("answered");
    assert_eq!(plain.ok()["text"], "whole answer");
    old.ended().await;
    assert_eq!(new.get("/v1/state").await.ok()["shutdownInterrupted"], false);
}

#[tokio::test]
async fn a_waiting_call_is_relayed_too() {
    let (old, mut old_asks, new, mut new_asks) = pair(AT_ONCE).await;
    let ask = |id: &str| Send::post("/v1/calls").json(&json!({"input": id, "callId": id}));
    let address = old.address;
    let calls: Vec<_> = ["c-1", "c-2"].map(|id| tokio::spawn(send(address, ask(id)))).into();
    let running = asked(&mut old_asks).await;
    soon("the second call", async {
        while new.get("/v1/calls").await.ok().as_array().map(Vec::len) != Some(2) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    old.stop(Stop::Terminate).await;
    running.abandoned().await;
    for text in ["1", "2"] {
        asked(&mut new_asks).await.reply(text);
    }
    for call in calls {
        assert_eq!(soon("a relayed call", call).await.expect("answered").ok()["status"], "completed");
    }
    old.ended().await;
}

#[tokio::test]
async fn a_tool_that_has_started_is_awaited_and_its_result_kept() {
    let (model, mut asks) = Puppet::new();
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Limits::default()));
    let (tool, gate) = Slow::new();
    let agent = Setup {
        store: Arc::clone(&store),
        tools: Arc::new(tool),
        times: StopTimes { relay: NOW, ..AT_ONCE },
        ..Setup::with_model(model)
    };
    let agent = agent.start().await;
    let mut stream = agent.stream(streamed("c-1")).await;
    asked(&mut asks).await.reply_with(vec![slow_call()]);
    stream.until("tool.started").await;
    agent.stop(Stop::Terminate).await;
    nothing_new_starts(&agent).await;
    assert!(!agent.running.is_finished(), "it ended before its tool");
    gate.add_permits(1);
    let events = stream.rest().await;
    let names: Vec<_> = events.iter().map(|event| event.name.as_str()).collect();
    assert_eq!(names, ["tool.finished", "message.completed", "call.suspended"]);
    agent.ended().await;
    assert!(asks.try_recv().is_err(), "nothing new starts");

    let (model, mut asks) = Puppet::new();
    let next = Setup { store, ..Setup::with_model(model) }.start().await;
    asked(&mut asks).await.reply("thanks");
    let events = next.stream(Send::get("/v1/calls/c-1/events")).await.rest().await;
    assert_eq!(events.last().expect("events").data["usage"]["toolCalls"], 1);
    assert_eq!(next.get("/v1/calls/c-1").await.ok()["text"], "thanks");
}

#[tokio::test]
async fn where_nobody_can_take_over_clients_are_let_go_and_find_their_call_again() {
    let (model, mut asks) = Puppet::new();
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Limits::default()));
    let times = StopTimes { relay: NOW, ..AT_ONCE };
    let agent = Setup { store: Arc::clone(&store), times, ..Setup::with_model(model) }.start().await;
    let stream = agent.stream(streamed("c-1")).await;
    let ask = Send::post("/v1/sessions/plain/calls").json(&json!({"input": "y", "callId": "c-2"}));
    let plain = tokio::spawn(send(agent.address, ask.clone()));
    let (_one, _two) = (asked(&mut asks).await, asked(&mut asks).await);
    agent.stop(Stop::Terminate).await;
    let events = stream.rest().await;
    assert_eq!(events.last().map(|event| event.name.as_str()), Some("call.suspended"));
    let problem = soon("the plain call", plain).await.expect("answered").problem(503, "draining");
    assert_eq!((&problem["callId"], &problem["admitted"]), (&json!("c-2"), &json!(true)));
    agent.ended().await;

    let next = Setup { store, ..Setup::default() }.start().await;
    assert_eq!(next.send(ask).await.ok()["resumes"], 1);
    let last = events.last().expect("events").id.clone();
    let rest =
        next.stream(Send::get("/v1/calls/c-1/events").header("last-event-id", last)).await.rest().await;
    assert_eq!(rest[0].name, "call.resumed");
    assert_eq!(rest.last().map(|event| event.name.as_str()), Some("call.completed"));
}

#[tokio::test]
async fn ctrl_c_gives_everything_back_at_once() {
    let (model, mut asks) = Puppet::new();
    let agent = Setup::with_model(model).start().await;
    let stream = agent.stream(streamed("c-1")).await;
    let running = asked(&mut asks).await;
    agent.stop(Stop::Interrupt).await;
    running.abandoned().await;
    let events = stream.rest().await;
    assert_eq!(events.last().map(|event| event.name.as_str()), Some("call.suspended"));
    agent.ended().await;
}

#[tokio::test]
async fn a_second_signal_hurries_every_step() {
    let (model, mut asks) = Puppet::new();
    let (tool, _gate) = Slow::new();
    let agent = Setup { tools: Arc::new(tool), ..Setup::with_model(model) }.start().await;
    let mut stream = agent.stream(streamed("c-1")).await;
    asked(&mut asks).await.reply_with(vec![slow_call()]);
    stream.until("tool.started").await;
    agent.stop(Stop::Terminate).await;
    connections_close(&agent).await;
    // The second ends the time in which calls go on, the third the wait for their tools.
    agent.stop(Stop::Terminate).await;
    nothing_new_starts(&agent).await;
    agent.stop(Stop::Terminate).await;
    let ended = tokio::time::timeout(Duration::from_secs(8), agent.running).await;
    assert!(ended.is_ok(), "it waits for a tool although it was hurried");
}

#[tokio::test]
async fn clients_that_keep_idle_connections_or_do_not_read_do_not_hold_it() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let agent = Setup { times: StopTimes { relay: NOW, ..AT_ONCE }, ..Setup::default() }.start().await;
    let mut idle = tokio::net::TcpStream::connect(agent.address).await.expect("connected");
    idle.write_all(b"GET /openapi.json HTTP/1.1\r\nhost: a\r\n\r\n").await.expect("sent");
    let mut some = [0; 1024];
    idle.read_exact(&mut some).await.expect("an answer");
    let _silent = tokio::net::TcpStream::connect(agent.address).await.expect("connected");
    agent.stop(Stop::Terminate).await;
    agent.ended().await;
}
