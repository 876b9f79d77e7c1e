//! State, delete, clear, fork and list: the table of sessions.

use serde_json::{Value, json};

use crate::kit::{Replica, Send, Setup, echo};
use crate::parts::{Puppet, asked};

const S: &str = "/v1/users/alice/sessions/s1";

async fn talked() -> (Replica, Value) {
    let agent = echo().await;
    for text in ["one", "two"] {
        agent.post(&format!("{S}/calls"), json!({"input": text, "callId": text})).await.ok();
    }
    let state = agent.get(&format!("{S}/state")).await.ok();
    (agent, state)
}

fn put(state: &Value) -> Send {
    Send::put(&format!("{S}/state")).json(state)
}

#[tokio::test]
async fn a_state_is_read_whole_or_its_end_with_its_version() {
    let (agent, state) = talked().await;
    assert_eq!(
        (&state["version"], &state["turnCount"], &state["schemaVersion"]),
        (&json!(2), &json!(2), &json!(1))
    );
    assert_eq!(state["context"].as_array().map(Vec::len), Some(4));
    let fields =
        ["revision", "summary", "shutdownInterrupted", "state", "permissionContext", "planModeContext"];
    for field in fields.into_iter().chain(["tasksContext", "toolContext", "traceContext"]) {
        assert!(state.get(field).is_some(), "{field}");
    }
    let answer = agent.get(&format!("{S}/state?last=1")).await;
    assert_eq!(answer.header("etag"), Some("\"2\""));
    assert_eq!(answer.ok()["context"], json!([state["context"][3]]));
    let known = Send::get(&format!("{S}/state")).header("if-none-match", "\"2\"");
    assert_eq!(agent.send(known).await.status.as_u16(), 304);
    agent.get("/v1/users/alice/sessions/never/state").await.problem(404, "no-such-session");
}

#[tokio::test]
async fn a_state_is_replaced_only_where_it_is_the_one_that_was_read() {
    let (agent, mut state) = talked().await;
    state["state"] = json!({"orderNumber": 7, "big": 12345678901234567890u64});
    state["invented"] = json!([1, 2]);
    agent.send(put(&state)).await.problem(428, "condition-required");
    agent.send(put(&state).header("if-match", "\"1\"")).await.problem(412, "version-mismatch");
    agent.send(put(&state).header("if-match", "W/\"2\"")).await.problem(412, "version-mismatch");
    agent.send(put(&state).header("if-none-match", "*")).await.problem(412, "version-mismatch");
    agent
        .send(put(&state).header("if-match", "*").header("if-none-match", "*"))
        .await
        .problem(400, "bad-condition");
    let stored = agent.send(put(&state).header("if-match", "\"2\"")).await;
    assert_eq!(stored.header("etag"), Some("\"3\""));
    let read = agent.get(&format!("{S}/state")).await.ok();
    assert_eq!(
        (&read["version"], &read["state"], &read["invented"]),
        (&json!(3), &state["state"], &json!([1, 2]))
    );
    assert_eq!(read["context"], state["context"]);
    assert_eq!(stored.ok(), read);
    agent.send(put(&state).header("if-match", "*")).await.ok();
    let next = agent.post(&format!("{S}/calls"), json!({"input": "three"})).await.ok();
    assert_eq!(
        (&next["version"], next["text"].as_str()),
        (&json!(5), Some("You said: three. I remember 2 earlier turns."))
    );
}

#[tokio::test]
async fn a_state_is_created_only_where_there_is_none() {
    let (agent, mut state) = talked().await;
    state["sessionId"] = json!("s2");
    let create = Send::put("/v1/users/alice/sessions/s2/state").json(&state);
    agent.send(create.clone().header("if-match", "*")).await.problem(412, "version-mismatch");
    assert_eq!(agent.send(create.clone().header("if-none-match", "*")).await.ok()["version"], 1);
    agent.send(create.header("if-none-match", "*")).await.problem(412, "version-mismatch");
}

#[tokio::test]
async fn a_state_that_no_model_could_be_sent_is_refused() {
    let (agent, state) = talked().await;
    let refused = |change: &dyn Fn(&mut Value)| {
        let mut state = state.clone();
        change(&mut state);
        put(&state).header("if-match", "*")
    };
    let open_call =
        json!({"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}]});
    let unpaired = refused(&|state| state["context"] = json!([open_call]));
    agent.send(unpaired).await.problem(422, "wrong-shape");
    agent.send(refused(&|state| state["sessionId"] = json!("other"))).await.problem(422, "wrong-shape");
    agent.send(refused(&|state| state["userId"] = json!(null))).await.problem(422, "wrong-shape");
    agent.send(refused(&|state| state["schemaVersion"] = json!(9))).await.problem(422, "wrong-shape");
    agent.send(refused(&|state| state["context"] = json!("hello"))).await.problem(422, "wrong-shape");
    let not_json = Send::put(&format!("{S}/state")).header("if-match", "*").body("{");
    agent.send(not_json).await.problem(400, "not-json");
    assert_eq!(agent.get(&format!("{S}/state")).await.ok(), state);
}

#[tokio::test]
async fn nothing_is_replaced_while_a_call_is_live() {
    let (model, mut asks) = Puppet::new();
    let agent = Setup::with_model(model).start().await;
    agent.post(&format!("{S}/calls"), json!({"input": "one", "background": true})).await.ok();
    asked(&mut asks).await.reply("1");
    while agent.get(&format!("{S}/calls")).await.ok() != json!([]) {}
    let state = agent.get(&format!("{S}/state")).await.ok();
    agent
        .post(&format!("{S}/calls"), json!({"input": "two", "callId": "c-2", "background": true}))
        .await
        .ok();
    let running = asked(&mut asks).await;
    agent.send(put(&state).header("if-match", "*")).await.problem(409, "session-busy");
    agent.send(Send::post(&format!("{S}/clear"))).await.problem(409, "session-busy");
    let fork = agent.post(&format!("{S}/fork"), json!({"session": "s2"})).await.ok();
    assert_eq!(fork["context"].as_array().map(Vec::len), Some(2), "the last committed version");
    running.reply("2");
}

#[tokio::test]
async fn clear_forgets_everything_but_the_session() {
    let (agent, _) = talked().await;
    let cleared = agent.send(Send::post(&format!("{S}/clear"))).await;
    assert_eq!(cleared.header("etag"), Some("\"3\""));
    let fresh = cleared.ok();
    assert_eq!(
        (&fresh["version"], &fresh["context"], &fresh["turnCount"]),
        (&json!(3), &json!([]), &json!(0))
    );
    assert_eq!(agent.get(&format!("{S}/state")).await.ok(), fresh);
    agent.send(Send::post("/v1/sessions/never/clear")).await.problem(404, "no-such-session");
    // What was answered before is still known: no turn comes back.
    agent.post(&format!("{S}/calls"), json!({"input": "one", "callId": "one"})).await.ok();
    assert_eq!(agent.get(&format!("{S}/state")).await.ok()["version"], 3);
}

#[tokio::test]
async fn a_fork_goes_its_own_way() {
    let (agent, state) = talked().await;
    let forked = agent.post(&format!("{S}/fork"), json!({"session": "s/2"})).await;
    assert_eq!(forked.status.as_u16(), 201);
    let place = forked.header("location").expect("a location").to_owned();
    let fork = forked.ok();
    assert_eq!((&fork["sessionId"], &fork["context"]), (&json!("s/2"), &state["context"]));
    assert_eq!(agent.get(&place).await.ok()["context"], state["context"]);
    agent.post(&format!("{S}/fork"), json!({"session": "s/2"})).await.problem(409, "session-exists");
    let bare = json!({"session": "s3", "shareHistory": false, "shareState": false});
    assert_eq!(agent.post(&format!("{S}/fork"), bare).await.ok()["context"], json!([]));
    agent.post(&format!("{S}/fork"), json!({})).await.problem(422, "wrong-shape");
    agent.post("/v1/sessions/never/fork", json!({"session": "x"})).await.problem(404, "no-such-session");
    agent.post(&format!("{S}/calls"), json!({"input": "three"})).await.ok();
    assert_eq!(agent.get(&place).await.ok()["context"], state["context"]);
}

#[tokio::test]
async fn a_deleted_session_starts_anew_under_a_higher_version() {
    let (agent, _) = talked().await;
    for _ in 0..2 {
        assert_eq!(agent.delete(S).await.status.as_u16(), 204);
    }
    agent.get(&format!("{S}/state")).await.problem(404, "no-such-session");
    let call = agent.post(&format!("{S}/calls"), json!({"input": "new"})).await.ok();
    assert_eq!(call["text"], "You said: new. This is the first thing I remember.");
    assert!(call["version"].as_u64() > Some(2), "{call}");
}

#[tokio::test]
async fn a_user_s_sessions_are_listed_page_by_page_and_nobody_else_s() {
    let agent = echo().await;
    for n in 0..5 {
        agent.post(&format!("/v1/users/alice/sessions/s{n}/calls"), json!({"input": "x"})).await.ok();
        agent.post(&format!("/v1/users/bob/sessions/b{n}/calls"), json!({"input": "x"})).await.ok();
    }
    let mut seen = Vec::new();
    let mut path = "/v1/users/alice/sessions?limit=2".to_owned();
    loop {
        let page = agent.get(&path).await.ok();
        for row in page["sessions"].as_array().expect("rows") {
            assert_eq!(row["version"], 1);
            assert!(row["updatedAt"].as_str().is_some_and(|time| time.ends_with('Z')), "{row}");
            seen.push(row["session"].as_str().expect("an id").to_owned());
        }
        match page["next"].as_str() {
            Some(next) => path = format!("/v1/users/alice/sessions?limit=2&cursor={next}"),
            None => break,
        }
    }
    seen.sort();
    assert_eq!(seen, ["s0", "s1", "s2", "s3", "s4"]);
    let by_header = Send::get("/v1/sessions").header("holdfast-user", "bob");
    assert_eq!(agent.send(by_header).await.ok()["sessions"].as_array().map(Vec::len), Some(5));
    agent.get("/v1/users/alice/sessions?cursor=x").await.problem(400, "bad-query");
    agent.get("/v1/users/alice/sessions?limit=0").await.problem(400, "bad-query");
}

#[tokio::test]
async fn a_known_state_is_not_sent_again_however_its_etag_came_back() {
    let (agent, _) = talked().await;
    let known = |etag: &str| Send::get(&format!("{S}/state")).header("if-none-match", etag);
    // As caches between us write it.
    for etag in ["\"2\"", "W/\"2\"", "\"1\", \"2\"", "*"] {
        let answer = agent.send(known(etag)).await;
        assert_eq!((answer.status.as_u16(), answer.header("etag")), (304, Some("\"2\"")), "{etag}");
    }
    for etag in ["\"1\"", "2", "\"22\""] {
        assert_eq!(agent.send(known(etag)).await.status.as_u16(), 200, "{etag}");
    }
}

#[tokio::test]
async fn a_count_nobody_can_go_on_from_is_refused() {
    let (agent, mut state) = talked().await;
    for count in [u64::MAX, (1 << 53) + 1] {
        state["turnCount"] = json!(count);
        agent.send(put(&state).header("if-match", "*")).await.problem(422, "wrong-shape");
    }
    state["turnCount"] = json!(1u64 << 53);
    agent.send(put(&state).header("if-match", "*")).await.ok();
    agent.post(&format!("{S}/calls"), json!({"input": "three"})).await.ok();
}
