//! Connections on which nothing moves: between two requests while the replica stops, and clients that do not take their answer.

use std::time::{Duration, Instant};

use holdfast_sidecar::config::StopTimes;
use holdfast_sidecar::serve::Stop;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::kit::{Replica, SOON, Send, Setup, send, soon};
use crate::parts::{Puppet, asked};

const DRAIN: Duration = Duration::from_millis(600);

/// Somebody who asks again over the connection of the last answer must not be the one who learns that the drain is over:
/// by then the connection is closed, and the next one leads to another replica.
#[tokio::test]
async fn a_connection_nobody_used_during_the_drain_is_closed_before_calls_are_refused() {
    let (model, mut asks) = Puppet::new();
    let times = StopTimes { drain: DRAIN, tools: SOON, save: SOON, relay: SOON };
    let agent = Setup { times, ..Setup::with_model(model) }.start().await;
    let ask = Send::post("/v1/calls").json(&json!({"input": "x", "callId": "c-1"}));
    // Keeps the replica busy past its drain.
    let call = tokio::spawn(send(agent.address, ask));
    let _running = asked(&mut asks).await;

    let mut idle = TcpStream::connect(agent.address).await.expect("connected");
    idle.write_all(b"GET /openapi.json HTTP/1.1\r\nhost: a\r\n\r\n").await.expect("sent");
    let mut heard = vec![0; 64 << 10];
    let heard_first = idle.read(&mut heard).await.expect("an answer");
    assert!(heard[..heard_first].starts_with(b"HTTP/1.1 200"), "not an answer");
    agent.stop(Stop::Terminate).await;

    // Whatever is left of the first answer, then the end; no answer in between.
    let mut rest = Vec::new();
    soon("the end of the idle connection", idle.read_to_end(&mut rest)).await.expect("a clean end");
    assert!(!rest.windows(12).any(|bytes| bytes.starts_with(b"HTTP/1.1 5")), "it was refused");
    // One that is made now brings a request, and gets its answer.
    let late = send(agent.address, Send::get("/openapi.json")).await;
    assert_eq!((late.status.as_u16(), late.header("connection")), (200, Some("close")));
    assert!(!call.is_finished(), "the call that runs was cut");
}

/// Nobody can say when a stream begins whether the replica will still be there when it ends. So its connection ends with it,
/// and the stream's head says so: a client that was not told would send its next request into a connection that closes.
#[tokio::test]
async fn a_stream_is_the_last_thing_on_its_connection_and_says_so() {
    let (model, mut asks) = Puppet::new();
    let agent = Setup::with_model(model).start().await;
    let body = json!({"input": "x", "stream": true}).to_string();
    let length = body.len();
    let head = format!(
        "POST /v1/calls HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    );
    let mut connection = TcpStream::connect(agent.address).await.expect("connected");
    connection.write_all(format!("{head}{body}").as_bytes()).await.expect("sent");
    asked(&mut asks).await.reply("done");
    let mut heard = Vec::new();
    soon("the end of the connection", connection.read_to_end(&mut heard)).await.expect("a clean end");
    let heard = String::from_utf8(heard).expect("text");
    let (head, events) = heard.split_once("\r\n\r\n").expect("a head");
    assert!(head.lines().any(|line| line.eq_ignore_ascii_case("connection: close")), "{head}");
    assert!(events.contains("event: call.completed") && events.ends_with("0\r\n\r\n"), "not whole: {events}");
}

const STALLED: Duration = Duration::from_secs(1);

/// Asks for more than any socket's buffers hold, and reads nothing.
async fn greedy(agent: &Replica) -> TcpStream {
    let mut raw = TcpStream::connect(agent.address).await.expect("connected");
    raw.write_all(&b"GET /openapi.json HTTP/1.1\r\nhost: a\r\n\r\n".repeat(2000)).await.expect("sent");
    raw
}

#[tokio::test]
async fn a_client_that_takes_no_byte_is_hung_up_on() {
    let agent = Setup { stalled: STALLED, ..Setup::default() }.start().await;
    let began = Instant::now();
    let mut client = greedy(&agent).await;
    // It reads nothing, not even the end: but what it says meets nobody any more.
    soon("the hang-up", async {
        while client.write_all(b"\r\n").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    assert!(began.elapsed() >= STALLED, "too early: {:?}", began.elapsed());
    agent.post("/v1/calls", json!({"input": "hello"})).await.ok();
}

#[tokio::test]
async fn a_client_that_is_only_slow_is_not() {
    let agent = Setup { stalled: STALLED, ..Setup::default() }.start().await;
    let mut client = greedy(&agent).await;
    let began = Instant::now();
    let mut bytes = vec![0; 512 << 10];
    while began.elapsed() < STALLED * 3 {
        let read = soon("the next bytes", client.read(&mut bytes)).await.expect("an open connection");
        assert!(read > 0, "hung up on after {:?}", began.elapsed());
        tokio::time::sleep(STALLED / 20).await;
    }
}
