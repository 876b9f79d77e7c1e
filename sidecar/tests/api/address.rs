//! Whose session a request is about.

use serde_json::json;

use crate::kit::{Send, echo};

#[tokio::test]
async fn every_form_names_its_own_session() {
    let agent = echo().await;
    for prefix in ["/v1", "/v1/sessions/s1", "/v1/users/alice/sessions/s1", "/v1/users/bob/sessions/s1"] {
        let call = agent.post(&format!("{prefix}/calls"), json!({"input": "hello"})).await.ok();
        assert_eq!(call["version"], 1, "{prefix} shares a session with one before it");
    }
    let state = agent.get("/v1/users/alice/sessions/s1/state").await.ok();
    assert_eq!((&state["userId"], &state["sessionId"]), (&json!("alice"), &json!("s1")));
    assert_eq!(agent.get("/v1/state").await.ok()["userId"], json!(null));
    assert_eq!(agent.get("/v1/sessions/default/state").await.ok()["version"], 1);
}

#[tokio::test]
async fn any_string_is_an_id_in_the_path_and_in_a_header() {
    let agent = echo().await;
    let ids = [
        "a/b",
        "..",
        ".",
        "a\nb",
        "100%",
        "%41",
        "A",
        "😀",
        " ",
        "?#[]",
        "calls",
        "*",
        "~",
        &"x".repeat(512),
    ];
    for id in ids {
        let encoded = holdfast_sidecar::api::encode(id).to_string();
        let path = format!("/v1/users/{encoded}/sessions/{encoded}/calls");
        let by_path = agent.post(&path, json!({"input": "hello"})).await.ok();
        assert_eq!(by_path["version"], 1, "{id:?} is somebody else's");
        let by_header = Send::post("/v1/calls")
            .header("holdfast-user", encoded.clone())
            .header("holdfast-session", encoded.clone());
        assert_eq!(agent.send(by_header.json(&json!({"input": "again"}))).await.ok()["version"], 2, "{id:?}");
        let mixed = Send::get(&format!("/v1/sessions/{encoded}/state")).header("holdfast-user", encoded);
        let state = agent.send(mixed).await.ok();
        assert_eq!((&state["userId"], &state["sessionId"]), (&json!(id), &json!(id)));
    }
}

#[tokio::test]
async fn what_is_no_id_is_refused_and_says_why() {
    let agent = echo().await;
    let long = "x".repeat(513);
    let post = |path: &str| Send::post(path).json(&json!({"input": "x"}));
    agent.send(post(&format!("/v1/sessions/{long}/calls"))).await.problem(400, "bad-id");
    agent.send(post("/v1/sessions/%zz/calls")).await.problem(400, "bad-encoding");
    agent.send(post("/v1/sessions/%ff/calls")).await.problem(400, "bad-encoding");
    agent.send(post("/v1/users/%/sessions/s/calls")).await.problem(400, "bad-encoding");
    agent.send(post("/v1/calls").header("holdfast-session", "")).await.problem(400, "bad-id");
    agent.send(post("/v1/calls").header("holdfast-user", "é")).await.problem(400, "bad-id");
    agent.send(Send::get("/v1/calls/%zz")).await.problem(400, "bad-encoding");
    let both = post("/v1/sessions/a/calls").header("holdfast-session", "b");
    agent.send(both).await.problem(400, "ambiguous-address");
    let call_id = json!({"input": "x", "callId": long});
    agent.post("/v1/calls", call_id).await.problem(400, "bad-id");
    agent.post("/v1/sessions//calls", json!({"input": "x"})).await.problem(400, "bad-id");
}
