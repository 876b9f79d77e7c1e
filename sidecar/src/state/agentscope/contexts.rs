//! The contexts beside the history: the same things under other names.

use serde_json::{Map, Value, json};

/// Names of one kind of object, theirs and ours. Names that are data (a tool's, a task's own) are in no table.
pub(super) struct Names {
    pairs: &'static [(&'static str, &'static str)],
    /// Lists, or lists by name, of objects with names of their own.
    inside: &'static [(&'static str, &'static Self)],
}

const RULE: Names =
    Names { pairs: &[("tool_name", "toolName"), ("rule_content", "ruleContent")], inside: &[] };

pub(super) const PERMISSION: Names = Names {
    pairs: &[("allow_rules", "allowRules"), ("deny_rules", "denyRules"), ("ask_rules", "askRules")],
    inside: &[("allowRules", &RULE), ("denyRules", &RULE), ("askRules", &RULE)],
};

pub(super) const PLAN_MODE: Names =
    Names { pairs: &[("plan_active", "planActive"), ("current_plan_file", "currentPlanFile")], inside: &[] };

const TASK: Names = Names { pairs: &[("blocked_by", "blockedBy"), ("created_at", "createdAt")], inside: &[] };

const TASKS: Names = Names { pairs: &[], inside: &[("tasks", &TASK)] };

const TOOLS: Names = Names { pairs: &[("activated_groups", "activatedGroups")], inside: &[] };

#[derive(Clone, Copy, PartialEq)]
enum To {
    Ours,
    Theirs,
}

impl Names {
    pub(super) fn import(&self, theirs: Option<&Value>) -> Map<String, Value> {
        theirs.and_then(Value::as_object).map(|theirs| self.rename(theirs, To::Ours)).unwrap_or_default()
    }

    pub(super) fn export(&self, ours: &Map<String, Value>) -> Map<String, Value> {
        self.rename(ours, To::Theirs)
    }

    fn rename(&self, object: &Map<String, Value>, to: To) -> Map<String, Value> {
        let renamed = object.iter().map(|(name, value)| {
            let pair =
                self.pairs.iter().find(|(theirs, ours)| name == if to == To::Ours { theirs } else { ours });
            let new = pair.map_or(name.as_str(), |(theirs, ours)| if to == To::Ours { ours } else { theirs });
            let ours = if to == To::Ours { new } else { name };
            let inside = self.inside.iter().find(|(field, _)| *field == ours);
            let value = inside.map_or_else(|| value.clone(), |(_, names)| names.rename_inside(value, to));
            (new.to_owned(), value)
        });
        renamed.collect()
    }

    fn rename_inside(&self, value: &Value, to: To) -> Value {
        match value {
            Value::Array(items) => items
                .iter()
                .map(|item| match item {
                    Value::Object(object) => Value::Object(self.rename(object, to)),
                    other => other.clone(),
                })
                .collect(),
            Value::Object(by_name) => {
                let renamed = by_name.iter().map(|(name, value)| match value {
                    Value::Array(_) => (name.clone(), self.rename_inside(value, to)),
                    other => (name.clone(), other.clone()),
                });
                Value::Object(renamed.collect())
            }
            other => other.clone(),
        }
    }
}

/// Theirs may be the bare list; ours never is.
pub(super) fn import_tasks(theirs: Option<&Value>) -> Value {
    match theirs {
        Some(Value::Array(_)) => {
            json!({"tasks": TASK.rename_inside(theirs.unwrap_or(&Value::Null), To::Ours)})
        }
        Some(Value::Object(theirs)) => with_default(TASKS.rename(theirs, To::Ours), "tasks"),
        _ => with_default(Map::new(), "tasks"),
    }
}

pub(super) fn export_tasks(ours: &Value) -> Value {
    ours.as_object().map_or_else(|| ours.clone(), |ours| Value::Object(TASKS.rename(ours, To::Theirs)))
}

pub(super) fn import_tools(theirs: Option<&Value>) -> Value {
    with_default(TOOLS.import(theirs), "activatedGroups")
}

pub(super) fn export_tools(ours: &Value) -> Value {
    ours.as_object().map_or_else(|| ours.clone(), |ours| Value::Object(TOOLS.rename(ours, To::Theirs)))
}

fn with_default(mut object: Map<String, Value>, list: &str) -> Value {
    object.entry(list).or_insert_with(|| json!([]));
    Value::Object(object)
}
