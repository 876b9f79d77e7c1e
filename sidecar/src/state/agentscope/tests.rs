use proptest::prelude::*;

use super::*;
use crate::state::{Block, Message, Role, ToolResult, ToolUse, check_pairing};

/// As AgentScope writes one: a turn with a tool, results inside the assistant's message, contexts of every kind.
fn theirs() -> Value {
    json!({
        "session_id": "s1", "user_id": "alice", "summary": "so far", "reply_id": "r-9", "cur_iter": 3,
        "shutdown_interrupted": true, "invented": {"later": [1, 2]},
        "context": [
            {"id": "m1", "name": "alice", "role": "USER", "metadata": {}, "timestamp": "2026-08-01 10:00:00.123",
             "content": [{"type": "text", "text": "refund order 7"},
                         {"type": "image", "source": {"type": "url", "url": "https://x/y.png", "mime_type": "image/png"}},
                         {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}},
                         {"type": "audio", "source": {"type": "url", "url": "https://x/y.wav"}},
                         {"type": "hint", "hint": "be kind"}]},
            {"id": "m2", "name": "clerk", "role": "ASSISTANT", "metadata": {"model": "m"}, "timestamp": "2026-08-01 10:00:02.000",
             "usage": {"inputTokens": 40, "outputTokens": 9, "cachedTokens": 0, "time": 1.25},
             "content": [
                {"type": "thinking", "thinking": "hm", "signature": "abc"},
                {"type": "tool_use", "id": "t1", "name": "refund", "input": {"order": 7}, "state": "finished"},
                {"type": "tool_result", "id": "t1", "name": "refund", "state": "success",
                 "output": [{"type": "text", "text": "done"}, {"type": "data", "bytes": 3}]},
                {"type": "text", "text": "Refunded."}]},
            {"id": "m3", "role": "USER", "content": "and order 8?"},
            {"id": "m4", "role": "ASSISTANT", "content": [
                {"type": "tool_use", "id": "t2", "name": "refund", "input": {"order": 8}, "state": "allowed"},
                {"type": "tool_use", "id": "t3", "name": "mail", "input": {}, "content": "raw"}]},
            {"id": "m5", "role": "TOOL", "content": [
                {"type": "tool_result", "id": "t3", "name": "mail", "output": [], "state": "denied"},
                {"type": "tool_result", "id": "t2", "name": "refund", "output": "half", "state": "interrupted"}]},
            {"id": "m6", "role": "SYSTEM", "content": [], "name": null, "usage": null},
        ],
        "permission_context": {
            "mode": "accept_edits",
            "allow_rules": {"refund": [{"tool_name": "refund", "rule_content": "order:*", "behavior": "allow", "source": "user"}]},
            "deny_rules": {}, "ask_rules": {"tool_name": [{"tool_name": "tool_name", "rule_content": null}]},
        },
        "tool_context": {"activated_groups": ["mail"], "spawned": {"a": 1}},
        "tasks_context": {"tasks": [{"subject": "x", "description": "y", "state": "pending", "id": "1", "owner": null,
                                     "blocks": ["2"], "blocked_by": [], "created_at": "2026", "metadata": {"blocked_by": 1}}]},
        "plan_mode_context": {"plan_active": true, "current_plan_file": "plan.md"},
    })
}

fn import(theirs: &Value) -> AgentState {
    from_agentscope(&theirs.to_string()).expect("it can be read")
}

fn export(state: &AgentState) -> Value {
    serde_json::from_str(&to_agentscope(state)).expect("JSON")
}

/// As a store keeps it and another process reads it.
fn stored(state: &AgentState) -> AgentState {
    AgentState::from_json(&state.to_json()).expect("our own JSON")
}

#[test]
fn all_they_have_comes_back_as_it_was() {
    let theirs = theirs();
    assert_eq!(export(&stored(&import(&theirs))), theirs);
    let least = json!({"session_id": "s"});
    assert_eq!(export(&stored(&import(&least))), least);
}

#[test]
fn what_they_have_is_where_ours_is_looked_for() {
    let state = import(&theirs());
    assert_eq!(
        (state.user_id.as_ref().map(|id| id.as_str()), state.session_id.as_str()),
        (Some("alice"), "s1")
    );
    assert_eq!((state.meta.summary.as_deref(), state.shutdown_interrupted), (Some("so far"), true));
    let roles: Vec<Role> = state.context.iter().map(|message| message.role).collect();
    use Role::{Assistant, System, Tool, User};
    assert_eq!(roles, [User, Assistant, Tool, Assistant, User, Assistant, Tool, System]);
    assert_eq!(state.turn_count, 3);
    assert_eq!(state.context[1].usage.map(|usage| usage.input_tokens), Some(40));
    let results: Vec<_> = state.tool_outputs().map(|result| (result.is_error, result.text())).collect();
    assert_eq!(results[0], (false, "done".to_owned()));
    assert_eq!(results[1], (true, "denied: this tool call was not allowed".to_owned()));
    assert_eq!(results[2], (true, "half".to_owned()));
    assert_eq!(check_pairing(&state.context), Ok(()));
    assert_eq!(repairs(&state), Vec::<String>::new());

    assert_eq!(state.meta.tool_context, json!({"activatedGroups": ["mail"], "spawned": {"a": 1}}));
    assert_eq!(state.meta.plan_mode_context["currentPlanFile"], "plan.md");
    assert_eq!(state.meta.permission_context["allowRules"]["refund"][0]["toolName"], "refund");
    assert_eq!(
        state.meta.permission_context["askRules"]["tool_name"][0]["toolName"], "tool_name",
        "a tool's own name"
    );
    assert_eq!(state.meta.tasks_context["tasks"][0]["blockedBy"], json!([]));
    assert_eq!(
        state.meta.tasks_context["tasks"][0]["metadata"],
        json!({"blocked_by": 1}),
        "a task's own data"
    );
}

#[test]
fn a_call_without_a_result_gets_one_that_says_so() {
    let theirs = json!({"session_id": "s", "context": [
        {"id": "1", "role": "USER", "content": "go"},
        {"id": "2", "role": "ASSISTANT", "content": [
            {"type": "tool_use", "id": "a", "name": "f", "input": {}, "state": "asking"},
            {"type": "tool_use", "id": "b", "name": "f", "input": {}, "state": "pending"}]},
        {"id": "3", "role": "TOOL", "content": [{"type": "tool_result", "id": "b", "name": "f", "output": [], "state": "running"}]},
        {"id": "4", "role": "USER", "content": "well?"},
        {"id": "5", "role": "TOOL", "content": [{"type": "tool_result", "id": "zzz", "output": []}]},
        {"id": "6", "role": "ASSISTANT", "content": [{"type": "tool_use", "id": "c", "name": "g", "input": {}},
                                                     {"type": "tool_use", "id": "c", "name": "g", "input": {}}]},
    ]});
    let mut state = stored(&import(&theirs));
    assert_eq!(check_pairing(&state.context), Ok(()));
    let answered: Vec<_> =
        state.tool_outputs().map(|result| (result.tool_use_id.as_str(), result.text())).collect();
    assert_eq!(
        answered[0],
        ("b", "outcome unknown: the agent was interrupted while this tool ran".to_owned())
    );
    assert!(answered[1].0 == "a" && answered[1].1.contains("imported from AgentScope"), "{answered:?}");
    assert_eq!(answered[2].0, "c");
    let told = repairs(&state);
    assert_eq!(told.len(), 4, "{told:?}");
    assert!(told[0].contains("tool call \"a\" (f) had no result"), "{told:?}");
    assert!(told[1].contains("message \"5\" has a result for tool call \"zzz\""), "{told:?}");
    assert!(told[2].contains("tool call \"c\" a second time"), "{told:?}");
    assert_eq!(export(&state), theirs, "nothing was said since: nothing was added");

    state.context.push(Message::user("go on"));
    let after = export(&state);
    assert_eq!(
        after["context"].as_array().map(Vec::len),
        Some(9),
        "once the conversation goes on, it stays valid"
    );
    assert_eq!(after["context"][3]["content"][0]["state"], "error");
    assert_eq!(check_pairing(&import(&after).context), Ok(()));
}

#[test]
fn results_that_open_a_message_of_another_role_are_the_tools() {
    let theirs = json!({"session_id": "s", "user_id": null, "context": [
        {"id": "1", "role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}, "state": "finished"}]},
        {"id": "2", "role": "USER", "content": [
            {"type": "tool_result", "id": "a", "name": "f", "output": [], "state": "success"}, {"type": "text", "text": "so?"}]},
    ]});
    let state = stored(&import(&theirs));
    assert_eq!(repairs(&state), Vec::<String>::new());
    let roles: Vec<Role> = state.context.iter().map(|message| message.role).collect();
    assert_eq!(roles, [Role::Assistant, Role::Tool, Role::User]);
    assert_eq!(export(&state), theirs);
}

#[test]
fn a_change_made_here_wins_over_what_was_there() {
    let mut state =
        import(&json!({"session_id": "s", "permission_context": null, "summary": null, "tasks_context": []}));
    assert_eq!(export(&state)["permission_context"], Value::Null);
    assert_eq!(export(&state)["tasks_context"], json!([]));
    state.meta.permission_context.insert("mode".into(), json!("explore"));
    state.meta.summary = Some("new".into());
    state.meta.tasks_context = json!({"tasks": [{"id": "1", "createdAt": "now"}]});
    let after = export(&state);
    assert_eq!(after["permission_context"], json!({"mode": "explore"}));
    assert_eq!(after["summary"], "new");
    assert_eq!(after["tasks_context"], json!({"tasks": [{"id": "1", "created_at": "now"}]}));
}

#[test]
fn what_is_not_theirs_is_refused_with_its_place() {
    for (text, sentence) in [
        ("[]", "invalid type"),
        ("{}", "session_id is missing"),
        (r#"{"session_id": ""}"#, "the session id is empty"),
        (r#"{"session_id": "s", "user_id": 7}"#, "user_id is 7"),
        (
            r#"{"session_id": "s", "context": [{"role": "USER"}, {"role": "KING"}]}"#,
            "message 1 of context: its role",
        ),
        (
            r#"{"session_id": "s", "context": [{"role": "USER", "content": [{"type": "text"}]}]}"#,
            "message 0 of context: block 0: a text block needs text in \"text\"",
        ),
    ] {
        let error = from_agentscope(text).expect_err(text).to_string();
        assert!(error.contains(sentence), "{error}");
    }
}

#[test]
fn ours_comes_back_with_its_messages_and_contexts() {
    let slot = Slot::new(None, "a/b").expect("ids");
    let mut state = AgentState::new(&slot);
    let call = ToolUse { id: "t".into(), name: "f".into(), input: json!({"n": 1}), extra: Map::new() };
    let mut thought = Map::new();
    thought.insert("signature".into(), json!("xyz"));
    let mut cut = Message::assistant(vec![Block::text("I was")]);
    cut.interrupted = true;
    let mut tagged = Message::user("hi");
    tagged.extra.insert("metadata".into(), json!({"channel": "mail"}));
    tagged.interrupted = true;
    state.context = vec![
        tagged,
        Message::assistant(vec![
            Block::Thinking { thinking: "hm".into(), extra: thought },
            Block::ToolUse(call.clone()),
        ]),
        Message::tool(ToolResult::new(&call, true, "no")),
        cut,
    ];
    state.turn_count = 2;
    state.meta.plan_mode_context.insert("planActive".into(), json!(false));
    state.meta.permission_context.insert("denyRules".into(), json!({"f": [{"toolName": "f"}]}));
    state.meta.tasks_context = json!({"tasks": [{"id": "1", "blockedBy": ["2"]}]});
    let back = import(&export(&state));
    assert_eq!(back.context, state.context);
    assert_eq!(back.turn_count, 2);
    assert_eq!(back.slot(), slot);
    assert_eq!(
        (
            &back.meta.plan_mode_context,
            &back.meta.permission_context,
            &back.meta.tasks_context,
            &back.meta.tool_context
        ),
        (
            &state.meta.plan_mode_context,
            &state.meta.permission_context,
            &state.meta.tasks_context,
            &state.meta.tool_context
        )
    );
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a-z]{0,4}".prop_map(Value::from),
    ];
    leaf.prop_recursive(2, 8, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map("[a-z_]{1,6}", inner, 0..3)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// An object with these fields, each of them missing now and then, and a field nobody knows.
fn object(
    required: Vec<(&'static str, BoxedStrategy<Value>)>,
    optional: Vec<(&'static str, BoxedStrategy<Value>)>,
) -> BoxedStrategy<Value> {
    let required: Vec<_> = required
        .into_iter()
        .map(|(name, value)| value.prop_map(move |value| Some((name.to_owned(), value))).boxed())
        .collect();
    let optional: Vec<_> = optional
        .into_iter()
        .map(|(name, value)| {
            prop::option::weighted(0.8, value.prop_map(move |value| (name.to_owned(), value))).boxed()
        })
        .collect();
    let unknown =
        prop::option::weighted(0.2, (prop_oneof![Just("agentscope".to_owned()), "x_[a-z]{1,3}"], any_json()));
    (required, optional, unknown)
        .prop_map(|(required, optional, unknown)| {
            Value::Object(required.into_iter().chain(optional).chain([unknown]).flatten().collect())
        })
        .boxed()
}

fn one_of(words: &'static [&'static str]) -> BoxedStrategy<Value> {
    prop::sample::select(words).prop_map(Value::from).boxed()
}

fn block(depth: u32) -> BoxedStrategy<Value> {
    let text = || "[a-z ]{0,5}".prop_map(Value::from).boxed();
    let kind = |kind: &'static str| ("type", Just(json!(kind)).boxed());
    let ids = || one_of(&["a", "b", "c"]);
    let simple = prop_oneof![
        object(vec![kind("text"), ("text", text())], vec![]),
        object(vec![kind("thinking"), ("thinking", text())], vec![]),
        object(vec![kind("image"), ("source", any_json().boxed())], vec![]),
        object(vec![kind("hint")], vec![("hint", text())]),
    ];
    if depth == 0 {
        return simple.boxed();
    }
    let output = prop_oneof![
        text(),
        prop::collection::vec(block(depth - 1), 0..3).prop_map(Value::from),
        Just(Value::Null),
    ];
    prop_oneof![
        2 => simple,
        2 => object(
            vec![kind("tool_use"), ("id", ids()), ("name", text())],
            vec![("input", any_json().boxed()), ("state", one_of(&["pending", "asking", "allowed", "submitted", "finished"]))],
        ),
        2 => object(
            vec![kind("tool_result"), ("id", ids())],
            vec![("name", text()), ("output", output.boxed()),
                 ("state", one_of(&["success", "error", "interrupted", "denied", "running"]))],
        ),
    ]
    .boxed()
}

fn any_state() -> BoxedStrategy<Value> {
    let content = prop_oneof![
        1 => "[a-z]{0,4}".prop_map(Value::from),
        5 => prop::collection::vec(block(1), 0..5).prop_map(Value::from),
    ];
    let message = object(
        vec![("role", one_of(&["USER", "ASSISTANT", "ASSISTANT", "TOOL", "SYSTEM", "user"]))],
        vec![
            ("id", "[a-z0-9]{4}".prop_map(Value::from).boxed()),
            ("content", content.boxed()),
            ("metadata", any_json().boxed()),
            ("name", any_json().boxed()),
            ("timestamp", any_json().boxed()),
            ("usage", any_json().boxed()),
        ],
    );
    object(
        vec![("session_id", Just(json!("s")).boxed())],
        vec![
            ("user_id", one_of(&["u", "__anon__"])),
            ("summary", any_json().boxed()),
            ("context", prop::collection::vec(message, 0..6).prop_map(Value::from).boxed()),
            ("reply_id", any_json().boxed()),
            ("cur_iter", any_json().boxed()),
            ("shutdown_interrupted", any_json().boxed()),
            ("permission_context", any_json().boxed()),
            ("tool_context", any_json().boxed()),
            ("tasks_context", any_json().boxed()),
            ("plan_mode_context", any_json().boxed()),
        ],
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn whatever_they_have_comes_back_and_is_valid_here(theirs in any_state()) {
        let state = stored(&import(&theirs));
        prop_assert_eq!(check_pairing(&state.context), Ok(()));
        prop_assert_eq!(&export(&state), &theirs);
        if theirs["context"].is_array() {
            let noted = &state.meta.extra.get(KEY).map_or(Value::Null, |notes| notes["fields"]["context"].clone());
            prop_assert_eq!(noted, &Value::Null, "the history is converted and not merely kept");
        }
        let again = import(&export(&state));
        prop_assert_eq!(repairs(&again).len(), repairs(&state).len());
        prop_assert_eq!(again.context.len(), state.context.len());
    }

    #[test]
    fn whatever_is_valid_here_comes_back_from_there(theirs in any_state()) {
        let mut ours = import(&theirs);
        // Whatever came from there, as if it had been said here.
        for message in &mut ours.context {
            message.extra.shift_remove(KEY);
        }
        ours.meta.extra.clear();
        let back = import(&export(&ours));
        prop_assert_eq!(check_pairing(&back.context), Ok(()));
        let calls = |state: &AgentState| state.tool_calls().map(|call| (call.id.clone(), call.input.clone())).collect::<Vec<_>>();
        prop_assert_eq!(calls(&back), calls(&ours));
        let outputs = |state: &AgentState| state.tool_outputs().map(|result| (result.tool_use_id.clone(), result.is_error)).collect::<Vec<_>>();
        prop_assert_eq!(outputs(&back), outputs(&ours));
        prop_assert_eq!(back.meta.permission_context, ours.meta.permission_context);
        prop_assert_eq!(back.meta.tasks_context, ours.meta.tasks_context);
    }
}
