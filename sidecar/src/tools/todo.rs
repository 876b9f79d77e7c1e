//! `todo_write`: the model's own list of what is to be done, kept in the conversation's state.
//!
//! The call is the truth: what it does to the state is a pure function of the journalled call and the state before it,
//! so a replica that takes over arrives at the same list. Running it only checks it and answers.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{Safety, ToolOutput, ToolSpec};
use crate::state::{Meta, ToolUse};

pub const NAME: &str = "todo_write";
const MAX_TODOS: usize = 200;
const MAX_CONTENT: usize = 2000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Status {
    Pending,
    InProgress,
    Completed,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Priority {
    High,
    #[default]
    Medium,
    Low,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct Todo {
    content: String,
    status: Status,
    #[serde(default)]
    priority: Priority,
}

#[derive(Deserialize)]
struct Input {
    todos: Vec<Todo>,
}

#[derive(Serialize)]
struct Task<'a> {
    id: String,
    content: &'a str,
    status: Status,
    priority: Priority,
}

pub fn spec() -> ToolSpec {
    let schema = json!({
        "type": "object",
        "properties": {"todos": {
            "type": "array", "maxItems": MAX_TODOS,
            "description": "The whole list, in order. It replaces the one before.",
            "items": {"type": "object", "properties": {
                "content": {"type": "string", "minLength": 1, "maxLength": MAX_CONTENT, "description": "What is to be done."},
                "status": {"type": "string", "enum": ["pending", "in_progress", "completed"]},
                "priority": {"type": "string", "enum": ["high", "medium", "low"]},
            }, "required": ["content", "status"]},
        }},
        "required": ["todos"],
    });
    ToolSpec {
        name: NAME.into(),
        description:
            "Write down the steps of a longer task and keep them up to date. Each call gives the whole list; \
                      at most one entry is in progress."
                .into(),
        schema: RawValue::from_string(schema.to_string())
            .map_or_else(|_| RawValue::NULL.to_owned().into(), Arc::from),
        safety: Safety::Idempotent,
    }
}

/// Checks a call and answers it.
pub fn run(input: &Value) -> ToolOutput {
    match read(input) {
        Ok(todos) => {
            let count = |status| todos.iter().filter(|todo| todo.status == status).count();
            ToolOutput::text(format!(
                "The list has {} entries: {} completed, {} in progress, {} pending.",
                todos.len(),
                count(Status::Completed),
                count(Status::InProgress),
                count(Status::Pending),
            ))
        }
        Err(why) => ToolOutput::error(why),
    }
}

/// Replaces the list. An entry that says what an earlier one said keeps its id. `true` where something was written.
pub fn apply(meta: &mut Meta, tool_use: &ToolUse) -> bool {
    let Ok(todos) = read(&tool_use.input) else { return false };
    let before = meta.tasks_context.get("tasks").and_then(Value::as_array).cloned().unwrap_or_default();
    let mut known: Vec<(&str, &str)> =
        before.iter().filter_map(|task| Some((task["content"].as_str()?, task["id"].as_str()?))).collect();
    let mut tasks: Vec<Task<'_>> = Vec::with_capacity(todos.len());
    for (index, Todo { content, status, priority }) in todos.iter().enumerate() {
        let kept = known.iter().position(|(said, _)| said == content).map(|at| known.remove(at).1.to_owned());
        let id = kept.unwrap_or_else(|| fresh_id(tool_use, index));
        tasks.push(Task { id, content, status: *status, priority: *priority });
    }
    let tasks = json!(tasks);
    match &mut meta.tasks_context {
        Value::Object(context) => drop(context.insert("tasks".into(), tasks)),
        other => *other = json!({ "tasks": tasks }),
    }
    true
}

/// Of the call alone: every replica makes the same. The content is in it because some models repeat their call ids.
fn fresh_id(tool_use: &ToolUse, index: usize) -> String {
    let content = &tool_use.input["todos"][index]["content"];
    let digest = Sha256::digest(format!("{}\n{index}\n{content}", tool_use.id));
    digest.iter().take(6).fold("t".to_owned(), |id, byte| format!("{id}{byte:02x}"))
}

fn read(input: &Value) -> Result<Vec<Todo>, String> {
    let Input { todos } = Input::deserialize(input).map_err(|error| {
        format!("todos must be a list of {{content, status, priority}}: {error}; nothing was changed")
    })?;
    if todos.len() > MAX_TODOS {
        return Err(format!("there are more than {MAX_TODOS} entries; merge some; nothing was changed"));
    }
    if todos.iter().any(|todo| todo.content.trim().is_empty() || todo.content.len() > MAX_CONTENT) {
        return Err(format!("each entry needs a content of 1 to {MAX_CONTENT} bytes; nothing was changed"));
    }
    if todos.iter().filter(|todo| todo.status == Status::InProgress).count() > 1 {
        return Err("only one entry may be in_progress at a time; nothing was changed".into());
    }
    Ok(todos)
}

#[cfg(test)]
// A `json!` is written where it is used.
#[allow(clippy::needless_pass_by_value)]
mod tests {
    use super::*;
    use serde_json::Map;

    fn call(id: &str, todos: Value) -> ToolUse {
        ToolUse { id: id.into(), name: NAME.into(), input: json!({ "todos": todos }), extra: Map::new() }
    }

    fn tasks(meta: &Meta) -> Vec<(String, String)> {
        let tasks = meta.tasks_context["tasks"].as_array().expect("a list").iter();
        let text = |task: &Value, name: &str| task[name].as_str().expect("text").to_owned();
        tasks.map(|task| (text(task, "id"), text(task, "content"))).collect()
    }

    #[test]
    fn a_list_replaces_the_one_before_and_entries_keep_their_ids() {
        let mut meta = Meta::default();
        let first = call(
            "c1",
            json!([
                {"content": "look", "status": "in_progress", "priority": "high"},
                {"content": "leap", "status": "pending"},
            ]),
        );
        assert!(apply(&mut meta, &first));
        let before = tasks(&meta);
        assert_eq!(meta.tasks_context["tasks"][0]["priority"], "high");
        assert_eq!(meta.tasks_context["tasks"][1]["priority"], "medium");
        let second = call(
            "c2",
            json!([
                {"content": "leap", "status": "in_progress"},
                {"content": "land", "status": "pending"},
                {"content": "leap", "status": "pending"},
            ]),
        );
        assert!(apply(&mut meta, &second));
        let after = tasks(&meta);
        assert_eq!(after[0], before[1], "the same content, the same id");
        let ids: std::collections::BTreeSet<_> = after.iter().map(|(id, _)| id).collect();
        assert_eq!(ids.len(), 3);
    }

    #[test]
    fn a_takeover_arrives_at_the_same_list() {
        let call = call("c1", json!([{"content": "look", "status": "completed"}]));
        let (mut here, mut there) = (Meta::default(), Meta::default());
        apply(&mut here, &call);
        apply(&mut there, &call);
        assert_eq!(here, there);
        let once = here.clone();
        apply(&mut here, &call);
        assert_eq!(here, once, "applied twice is applied once");
    }

    #[test]
    fn what_is_not_a_list_of_one_thing_at_a_time_changes_nothing() {
        let two =
            json!([{"content": "a", "status": "in_progress"}, {"content": "b", "status": "in_progress"}]);
        for todos in
            [two, json!("later"), json!([{"content": "a"}]), json!([{"content": " ", "status": "pending"}])]
        {
            let call = call("c1", todos);
            assert!(run(&call.input).is_error, "{:?}", call.input);
            let mut meta = Meta::default();
            assert!(!apply(&mut meta, &call));
            assert_eq!(meta, Meta::default());
        }
        let fine = run(&json!({"todos": [{"content": "a", "status": "completed"}]}));
        assert!(!fine.is_error);
    }
}
