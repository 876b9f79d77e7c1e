//! A token, and the user a gateway has verified.

use holdfast_sidecar::api::auth::{Auth, Token};
use holdfast_sidecar::api::openapi;
use http::Method;
use serde_json::{Value, json};

use crate::kit::{Replica, Send, Setup};

async fn guarded(user_header: Option<&'static str>) -> Replica {
    let header = user_header.map(|name| name.parse().expect("a header"));
    let token = Token::new(Box::new(|| Ok("hunter2\n".to_owned())), header).expect("a token");
    Setup { auth: Auth::Token(token), ..Setup::default() }.start().await
}

/// Each path that is about somebody's session, with each method it takes.
fn every_request() -> Vec<(Method, String)> {
    let description: Value = serde_json::from_str(openapi::document()).expect("JSON");
    let mut requests = Vec::new();
    for (path, item) in
        description["paths"].as_object().expect("paths").iter().filter(|(path, _)| path.starts_with("/v1"))
    {
        let path = path.replace("{user}", "alice").replace(['{', '}'], "");
        let methods = item.as_object().expect("an item").keys().filter(|key| *key != "parameters");
        requests
            .extend(methods.map(|method| (method.to_uppercase().parse().expect("a method"), path.clone())));
    }
    assert!(requests.len() > 40, "{}", requests.len());
    requests
}

fn call(path: &str) -> Send {
    Send::post(path).json(&json!({"input": "hello"}))
}

#[tokio::test]
async fn nobody_gets_in_without_the_token() {
    let agent = guarded(None).await;
    for wrong in [None, Some("Bearer hunter3"), Some("Bearer "), Some("hunter2"), Some("Basic aHVudGVyMg==")]
    {
        for path in ["/v1/calls", "/v1/users/alice/sessions/s1/calls"] {
            let ask = wrong.into_iter().fold(call(path), |ask, value| ask.header("authorization", value));
            let refused = agent.send(ask).await;
            refused.problem(401, "unauthenticated");
            assert!(refused.header("www-authenticate").is_some_and(|value| value.starts_with("Bearer")));
        }
    }
    let unparsed = Send::post("/v1/calls").header("content-type", "text/plain").body("{");
    agent.send(unparsed).await.problem(401, "unauthenticated");
    for (method, path) in every_request() {
        agent.send(Send::new(method, &path)).await.problem(401, "unauthenticated");
    }
    let in_ = |path: &str| call(path).header("authorization", "Bearer hunter2");
    agent.send(in_("/v1/calls")).await.ok();
    agent.send(in_("/v1/users/alice/sessions/s1/calls")).await.ok();
    agent.send(in_("/v1/users/bob/sessions/s1/calls")).await.ok();
}

#[tokio::test]
async fn the_proven_user_is_the_only_one_there_is() {
    let agent = guarded(Some("x-user")).await;
    let as_ = |user: &str, ask: Send| ask.header("authorization", "Bearer hunter2").header("x-user", user);
    let state = |path: &str| Send::get(path);
    agent
        .send(call("/v1/calls").header("authorization", "Bearer hunter2"))
        .await
        .problem(401, "unauthenticated");
    agent.send(as_("alice", call("/v1/sessions/s1/calls"))).await.ok();
    let own = agent.send(as_("alice", state("/v1/users/alice/sessions/s1/state"))).await.ok();
    assert_eq!(own["userId"], "alice");
    let (of_alice, of_whoever): (Vec<_>, Vec<_>) =
        every_request().into_iter().partition(|(_, path)| path.starts_with("/v1/users/alice/"));
    for (method, path) in of_alice {
        agent.send(as_("bob", Send::new(method, &path))).await.problem(403, "forbidden");
    }
    for (method, path) in of_whoever {
        let named = Send::new(method, &path).header("holdfast-user", "alice");
        agent.send(as_("bob", named)).await.problem(403, "forbidden");
    }
    let by_header = state("/v1/sessions/s1/state").header("holdfast-user", "alice");
    agent.send(as_("bob", by_header)).await.problem(403, "forbidden");
    agent.send(as_("bob", state("/v1/sessions/s1/state"))).await.problem(404, "no-such-session");
    let listed = agent.send(as_("alice", state("/v1/sessions"))).await.ok();
    assert_eq!(listed["sessions"][0]["session"], "s1");
}

#[tokio::test]
async fn our_own_header_may_be_the_gateway_s() {
    let agent = guarded(Some("holdfast-user")).await;
    let ask =
        |path: &str| call(path).header("authorization", "Bearer hunter2").header("holdfast-user", "alice");
    agent.send(ask("/v1/users/alice/sessions/s1/calls")).await.ok();
    assert_eq!(agent.send(ask("/v1/sessions/s1/calls")).await.ok()["version"], 2);
    agent.send(ask("/v1/users/bob/sessions/s1/calls")).await.problem(403, "forbidden");
}

/// What a gateway adds to what its caller sent, instead of replacing it, proves nothing.
#[tokio::test]
async fn a_user_who_is_named_twice_is_nobody() {
    for header in ["x-user", "holdfast-user"] {
        let agent = guarded(Some(header)).await;
        let ask = call("/v1/sessions/s1/calls").header("authorization", "Bearer hunter2");
        let twice = ask.header(header, "alice").header(header, "mallory");
        agent.send(twice).await.problem(401, "unauthenticated");
    }
    let open = crate::kit::echo().await;
    for header in ["holdfast-user", "holdfast-session"] {
        let twice = call("/v1/calls").header(header, "a").header(header, "b");
        open.send(twice).await.problem(400, "ambiguous-address");
    }
}
