//! A manifest read strictly: every mistake at once, each with its line, its field and what to write instead.
//!
//! ```text
//! text ── tree (YAML with lines) ── check (against our own schema) ── rules ──▶ Agent, or every Mistake
//! ```
//! Rules are checked on what is right of the manifest, so one typing error does not hide them.

mod check;
mod hints;
#[cfg(test)]
mod tests;
mod tree;

use std::fmt;

use serde_json::{Value, json};

use crate::{Agent, GROUP, VERSION, rules, schema};
use check::Checker;
use tree::{Node, Position};

/// One thing that is wrong, where it is, and what to write instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// Counted from 1.
    pub line: usize,
    /// Counted from 1.
    pub column: usize,
    /// The field, for example `spec.model.provider`; empty for the document itself.
    pub path: String,
    pub message: String,
}

/// Everything that is wrong with a manifest, in the order of its lines. Never empty.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Mistakes {
    pub mistakes: Vec<Mistake>,
    file: String,
}

impl Mistakes {
    fn new(mut mistakes: Vec<Mistake>) -> Self {
        mistakes.sort_by(|a, b| (a.line, a.column, &a.path).cmp(&(b.line, b.column, &b.path)));
        Self { mistakes, file: "manifest".to_owned() }
    }

    /// Say this file's name before every line.
    #[must_use]
    pub fn in_file(mut self, file: &str) -> Self {
        file.clone_into(&mut self.file);
        self
    }
}

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, Mistake { line, column, path, message }) in self.mistakes.iter().enumerate() {
            let newline = if index == 0 { "" } else { "\n" };
            let colon = if path.is_empty() { "" } else { ": " };
            write!(f, "{newline}{}:{line}:{column}: {path}{colon}{message}", self.file)?;
        }
        Ok(())
    }
}

/// Read the one Agent in a text, or say everything that is wrong with it. Documents of other kinds are passed over,
/// so that a manifest may bring its Secrets and ConfigMaps along.
pub fn parse(text: &str) -> Result<Agent, Mistakes> {
    let one = |mistake| Mistakes::new(vec![mistake]);
    let documents = tree::read(text).map_err(one)?;
    let document = the_agent(&documents).map_err(one)?;
    let schema = schema::schema().map_err(|error| one(Position::START.mistake("", error.to_string())))?;

    let mut checker = Checker::new();
    let cleaned = clean_document(&mut checker, document, &schema);
    let agent: Option<Agent> = match serde_json::from_value(cleaned) {
        Ok(agent) => Some(agent),
        Err(error) if checker.mistakes.is_empty() => {
            checker.say(document, "", error.to_string());
            None
        }
        Err(_) => None,
    };
    for broken in agent.iter().flat_map(rules::broken_anywhere) {
        let unsure =
            checker.dropped.iter().any(|dropped| broken.reads.iter().any(|read| overlap(read, dropped)));
        if !unsure {
            let message = format!("{} ({})", broken.message, broken.reason);
            checker.mistakes.push(document.locate(&broken.path).mistake(&broken.path, message));
        }
    }
    match agent {
        Some(agent) if checker.mistakes.is_empty() => Ok(agent),
        _ => Err(Mistakes::new(checker.mistakes)),
    }
}

fn the_agent(documents: &[Node]) -> Result<&Node, Mistake> {
    let kind =
        |document: &&Node| document.get("kind").and_then(|field| field.value.as_str()) == Some("Agent");
    let mut agents = documents.iter().filter(kind);
    match (agents.next(), agents.next(), documents) {
        (Some(agent), None, _) => Ok(agent),
        (Some(_), Some(second), _) => Err(second.at.mistake("", "a second Agent; keep one in a file")),
        (None, _, [only]) => Ok(only),
        (None, _, _) => Err(Position::START.mistake("", "there is no Agent here; add kind: Agent")),
    }
}

/// Everything but what the API server or the operator writes: `status` is ignored.
fn clean_document(checker: &mut Checker, document: &Node, schema: &Value) -> Value {
    let word = |value: String| json!({"type": "string", "enum": [value]});
    let labels = json!({"type": "object", "additionalProperties": {"type": "string"}});
    let metadata = json!({
        "type": "object",
        "required": ["name"],
        "properties": {
            "name": {"type": "string", "minLength": 1, "maxLength": 253},
            "namespace": {"type": "string", "minLength": 1, "maxLength": 63},
            "labels": labels,
            "annotations": labels,
            "uid": {"type": "string"},
            "generation": {"type": "integer"},
            "resourceVersion": {"type": "string"},
            "creationTimestamp": {"type": "string"},
            "finalizers": {"type": "array", "items": {"type": "string"}},
            "ownerReferences": {"type": "array", "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            "managedFields": {"type": "array", "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
        },
    });
    let whole = json!({
        "type": "object",
        "required": ["apiVersion", "kind", "metadata", "spec"],
        "properties": {
            "apiVersion": word(format!("{GROUP}/{VERSION}")),
            "kind": word("Agent".to_owned()),
            "metadata": metadata,
            "spec": schema["properties"]["spec"],
            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        },
    });
    match checker.clean(document, &whole, "") {
        Some(mut cleaned) => {
            if let Some(fields) = cleaned.as_object_mut() {
                fields.remove("status");
            }
            cleaned
        }
        None => stand_in(document, schema),
    }
}

/// A whole Agent made of the blocks that are right by themselves, so that the rules can look at those.
fn stand_in(document: &Node, schema: &Value) -> Value {
    let properties = &schema["properties"]["spec"]["properties"];
    let mut spec = json!({"model": {"provider": "Scripted"}});
    if let Some(tree::Content::Map(fields)) = document.get("spec").map(|field| &field.value.content) {
        for field in fields.iter().filter(|field| !field.value.is_null()) {
            // Once more, silently: what is wrong has been said.
            let mut again = Checker::new();
            if let Some(value) = again.clean(&field.value, &properties[&field.key], &field.key) {
                spec[&field.key] = value;
            }
        }
    }
    let name = document.get("metadata").and_then(|field| field.value.get("name"));
    let name = name.and_then(|field| field.value.as_str()).unwrap_or("agent");
    json!({"apiVersion": format!("{GROUP}/{VERSION}"), "kind": "Agent", "metadata": {"name": name}, "spec": spec})
}

fn overlap(a: &str, b: &str) -> bool {
    let within = |inner: &str, outer: &str| {
        inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    };
    // The whole document is dropped whenever a part that it needs is; that alone says nothing about a rule.
    !a.is_empty() && !b.is_empty() && b != "spec" && (within(a, b) || within(b, a))
}
