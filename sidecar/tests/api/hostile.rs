//! Requests that nobody should send. Each gets its answer, and nobody else notices.

use std::time::Duration;

use holdfast_sidecar::api::body::MAX_CALL_BYTES;
use http::Method;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::kit::{Replica, Send, echo, soon};

async fn nothing_was_admitted(agent: &Replica) {
    agent.get("/v1/state").await.problem(404, "no-such-session");
}

#[tokio::test]
async fn what_is_not_json_is_400_and_json_of_another_shape_422() {
    let agent = echo().await;
    let post =
        |body: &str| Send::post("/v1/calls").header("content-type", "application/json").body(body.to_owned());
    let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    for body in ["", "{", "hello", "{\"input\":\"a\"} x", "\u{feff}{}", "{\"input\":[,"] {
        agent.send(post(body)).await.problem(400, "not-json");
    }
    agent.send(post("x").body(&b"{\"input\":\"\xff\"}"[..])).await.problem(400, "not-json");
    for body in [
        "{}",
        "[]",
        &deep,
        &format!("{{\"input\":{deep}}}"),
        "null",
        r#"{"messages":[]}"#,
        r#"{"messages":{}}"#,
        r#"{"input":7}"#,
        r#"{"input":"a","messages":[{"role":"user","content":"b"}]}"#,
        r#"{"messages":[{"content":"a"}]}"#,
        r#"{"messages":[{"role":"king","content":"a"}]}"#,
        r#"{"messages":[{"role":"user","content":[{"type":"text"}]}]}"#,
        r#"{"messages":[{"role":"user","content":[{"text":"a"}]}]}"#,
        r#"{"input":"a","steam":true}"#,
        r#"{"input":"a","stream":"yes"}"#,
        r#"{"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f","input":{}}]}]}"#,
        r#"{"messages":[{"role":"tool","content":[{"type":"tool_result","toolUseId":"t","content":"a"}]}]}"#,
    ] {
        agent.send(post(body)).await.problem(422, "wrong-shape");
    }
    nothing_was_admitted(&agent).await;
}

#[tokio::test]
async fn other_media_types_are_415_and_none_is_json() {
    let agent = echo().await;
    let body = r#"{"input":"hello"}"#;
    for media_type in ["text/plain", "application/x-www-form-urlencoded", "application/jsonp", "json"] {
        agent
            .send(Send::post("/v1/calls").header("content-type", media_type).body(body))
            .await
            .problem(415, "not-json");
    }
    nothing_was_admitted(&agent).await;
    for media_type in ["application/json; charset=utf-8", "APPLICATION/JSON", "application/vnd.a+json"] {
        agent.send(Send::post("/v1/calls").header("content-type", media_type).body(body)).await.ok();
    }
    agent.send(Send::post("/v1/calls").body(body)).await.ok();
}

#[tokio::test]
async fn a_body_beyond_its_bound_is_413_announced_or_not() {
    let agent = echo().await;
    let body = format!("{{\"input\":\"{}\"}}", "x".repeat(MAX_CALL_BYTES));
    agent
        .send(Send::post("/v1/calls").header("content-type", "application/json").body(body))
        .await
        .problem(413, "too-large");

    let mut raw = TcpStream::connect(agent.address).await.expect("connected");
    let head = "POST /v1/calls HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n";
    raw.write_all(head.as_bytes()).await.expect("sent");
    let chunk = [format!("{:x}\r\n", 1 << 20).as_bytes(), &vec![b'x'; 1 << 20], b"\r\n"].concat();
    for _ in 0..=(MAX_CALL_BYTES >> 20) {
        if raw.write_all(&chunk).await.is_err() {
            break;
        }
    }
    let mut answer = [0; 12];
    soon("an answer", raw.read_exact(&mut answer)).await.expect("an answer");
    assert_eq!(&answer, b"HTTP/1.1 413");
    nothing_was_admitted(&agent).await;
}

#[tokio::test]
async fn unknown_paths_and_methods_are_problems_too() {
    let agent = echo().await;
    for path in ["/", "/v1/nothing", "/v1/calls/", "/v2/calls", "/v1/users/a/sessions/b/c", "/v1/calls/a/b"] {
        let problem = agent.get(path).await.problem(404, "no-such-path");
        assert_eq!(problem["instance"], path);
    }
    let refused = agent.send(Send::new(Method::PATCH, "/v1/calls")).await;
    refused.problem(405, "method-not-allowed");
    assert!(refused.header("allow").is_some_and(|allow| allow.contains("POST") && allow.contains("GET")));
    agent.get("/v1/state?last=x").await.problem(400, "bad-query");
    agent.get("/v1/state?lost=1").await.problem(400, "bad-query");
    agent.get("/v1/sessions").await.problem(400, "no-user");
}

#[tokio::test]
async fn a_client_that_vanishes_in_the_middle_of_its_request_leaves_nothing() {
    let agent = echo().await;
    for cut in [
        "POST /v1/calls HTTP/1.1\r\nhost: a\r\ncontent-length: 100\r\n\r\n{\"input\":",
        "POST /v1/calls HT",
        "\0\0\0\0\r\n\r\n",
    ] {
        let mut raw = TcpStream::connect(agent.address).await.expect("connected");
        raw.write_all(cut.as_bytes()).await.expect("sent");
        drop(raw);
    }
    nothing_was_admitted(&agent).await;
    agent.post("/v1/calls", json!({"input": "hello"})).await.ok();
}

#[tokio::test]
async fn clients_that_do_not_read_their_stream_hold_up_nobody() {
    let agent = echo().await;
    let mut silent = Vec::new();
    for n in 0..50 {
        let body = json!({"input": "x".repeat(100_000), "stream": true}).to_string();
        let head = format!(
            "POST /v1/sessions/s{n}/calls HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        let mut raw = TcpStream::connect(agent.address).await.expect("connected");
        raw.write_all(head.as_bytes()).await.expect("sent");
        silent.push(raw);
    }
    for n in 0..50 {
        let path = format!("/v1/sessions/s{n}/state");
        soon("the call of a silent client", async {
            while agent.get(&path).await.status.as_u16() != 200 || agent.get(&path).await.ok()["version"] != 1
            {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await;
    }
    assert_eq!(agent.sessions.running(), 0);
}

#[tokio::test]
async fn what_is_wrong_with_a_request_is_found_before_its_call_is_taken() {
    let agent = echo().await;
    let ask = || Send::post("/v1/calls").header("last-event-id", "nonsense");
    agent.send(ask().json(&json!({"input": "x", "stream": true}))).await.problem(400, "bad-event-id");
    agent
        .send(ask().header("accept", "text/event-stream").json(&json!({"input": "x"})))
        .await
        .problem(400, "bad-event-id");
    nothing_was_admitted(&agent).await;
}

#[tokio::test]
async fn a_body_that_ends_early_is_400_where_anybody_is_left_to_hear_it() {
    let agent = echo().await;
    let mut raw = TcpStream::connect(agent.address).await.expect("connected");
    let head = "POST /v1/calls HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n8\r\n{\"input\"\r\nnot a length\r\n";
    raw.write_all(head.as_bytes()).await.expect("sent");
    let mut answer = Vec::new();
    soon("an answer", raw.read_to_end(&mut answer)).await.expect("an answer");
    let answer = String::from_utf8(answer).expect("text");
    assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("problems/body-incomplete"), "{answer}");
    nothing_was_admitted(&agent).await;
}
