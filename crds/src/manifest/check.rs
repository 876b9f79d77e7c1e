//! Holds a tree against the schema: whatever the schema says about a field is checked here, so a field that is
//! added to the types is never forgotten.

use std::collections::BTreeSet;

use regex_lite::Regex;
use serde_json::{Map, Value};

use super::{
    Mistake, hints,
    tree::{Content, Field, Node},
};

pub(super) struct Checker {
    pub mistakes: Vec<Mistake>,
    /// Paths left out of the cleaned value because they are mistaken.
    pub dropped: BTreeSet<String>,
}

impl Checker {
    pub(super) fn new() -> Self {
        Self { mistakes: Vec::new(), dropped: BTreeSet::new() }
    }

    pub(super) fn say(&mut self, node: &Node, path: &str, message: impl Into<String>) {
        self.mistakes.push(node.at.mistake(path, message));
    }

    /// What is right of this node. `None`: nothing, and why is among the mistakes.
    pub(super) fn clean(&mut self, node: &Node, schema: &Value, path: &str) -> Option<Value> {
        let cleaned = self.clean_by_type(node, schema, path);
        if cleaned.is_none() {
            self.dropped.insert(path.to_owned());
        }
        cleaned
    }

    fn clean_by_type(&mut self, node: &Node, schema: &Value, path: &str) -> Option<Value> {
        if schema["x-kubernetes-int-or-string"] == true {
            return self.quantity(node, path);
        }
        match (schema["type"].as_str().unwrap_or_default(), &node.content) {
            ("object", Content::Map(fields)) => self.object(node, fields, schema, path),
            ("array", Content::List(items)) => self.list(node, items, schema, path),
            ("string", Content::Scalar(Value::String(text))) => self.text(node, text, schema, path),
            ("boolean", Content::Scalar(value @ Value::Bool(_))) => Some(value.clone()),
            ("integer", Content::Scalar(value)) if value.is_i64() => self.number(node, value, schema, path),
            ("number", Content::Scalar(value)) if value.is_number() => self.number(node, value, schema, path),
            (expected, _) => {
                self.say(node, path, hints::wrong_type(node, expected, schema));
                None
            }
        }
    }

    fn object(&mut self, node: &Node, fields: &[Field], schema: &Value, path: &str) -> Option<Value> {
        let known = schema["properties"].as_object();
        let any = schema.get("additionalProperties");
        if schema["x-kubernetes-preserve-unknown-fields"] == true {
            return Some(node.to_json());
        }
        if let Some(max) = schema["maxProperties"].as_u64().filter(|max| fields.len() as u64 > *max) {
            self.say(node, path, format!("{} entries are too many; write at most {max}", fields.len()));
        }
        let mut cleaned = Map::new();
        // An explicit null is an absent field, as it is to the API server.
        for Field { key, at, value } in fields.iter().filter(|field| !field.value.is_null()) {
            let path = join(path, key);
            match known.and_then(|known| known.get(key)).or(any) {
                Some(schema) => {
                    cleaned.extend(self.clean(value, schema, &path).map(|value| (key.clone(), value)));
                }
                None => self.mistakes.push(at.mistake(&path, hints::unknown_field(key, known))),
            }
        }
        let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let mut whole = true;
        for name in required.filter(|name| !cleaned.contains_key(*name)) {
            whole = false;
            let path = join(path, name);
            if self.dropped.insert(path.clone()) {
                let schema = known.and_then(|known| known.get(name)).unwrap_or(&Value::Null);
                self.say(node, &path, hints::missing_field(name, schema));
            }
        }
        whole.then_some(Value::Object(cleaned))
    }

    fn list(&mut self, node: &Node, items: &[Node], schema: &Value, path: &str) -> Option<Value> {
        if let Some(max) = schema["maxItems"].as_u64().filter(|max| items.len() as u64 > *max) {
            self.say(node, path, format!("{} items are too many; write at most {max}", items.len()));
        }
        let key = schema["x-kubernetes-list-map-keys"][0].as_str();
        let unique = key.is_some() || schema["x-kubernetes-list-type"] == "set";
        let mut seen = BTreeSet::new();
        let mut cleaned = Vec::new();
        for (index, item) in items.iter().enumerate() {
            let path = format!("{path}[{index}]");
            let name = match key {
                Some(key) => item.get(key).and_then(|field| field.value.as_str()),
                None => item.as_str(),
            };
            if let Some(name) = name.filter(|name| unique && !seen.insert((*name).to_owned())) {
                self.say(item, &path, format!("{name:?} is there already; give each a name of its own"));
            }
            cleaned.extend(self.clean(item, &schema["items"], &path));
        }
        Some(Value::Array(cleaned))
    }

    fn text(&mut self, node: &Node, text: &str, schema: &Value, path: &str) -> Option<Value> {
        let problem = if let Some(values) = schema["enum"].as_array() {
            let known: Vec<&str> = values.iter().filter_map(Value::as_str).collect();
            (!known.contains(&text)).then(|| hints::unknown_value(text, &known))
        } else {
            let length = text.chars().count() as u64;
            let too_long = schema["maxLength"].as_u64().filter(|max| length > *max);
            let pattern = schema["pattern"].as_str().filter(|pattern| !matches(pattern, text));
            match (too_long, pattern) {
                (Some(max), _) => Some(format!("{length} characters are too many; write at most {max}")),
                (None, Some(pattern)) => Some(hints::wrong_pattern(text, pattern)),
                (None, None) => (length < schema["minLength"].as_u64().unwrap_or(0))
                    .then(|| "this must not be empty".to_owned()),
            }
        };
        match problem {
            Some(problem) => {
                self.say(node, path, problem);
                None
            }
            None => Some(Value::String(text.to_owned())),
        }
    }

    fn number(&mut self, node: &Node, value: &Value, schema: &Value, path: &str) -> Option<Value> {
        let number = value.as_f64()?;
        let (low, high) = (schema["minimum"].as_f64(), schema["maximum"].as_f64());
        if low.is_some_and(|low| number < low) || high.is_some_and(|high| number > high) {
            self.say(node, path, hints::out_of_range(value, low, high));
            return None;
        }
        Some(value.clone())
    }

    /// Kubernetes' own quantities: `100m`, `64Mi`, `2`.
    fn quantity(&mut self, node: &Node, path: &str) -> Option<Value> {
        match &node.content {
            Content::Scalar(Value::Number(number)) => Some(Value::String(number.to_string())),
            Content::Scalar(Value::String(text)) if matches(hints::QUANTITY_PATTERN, text) => {
                Some(Value::String(text.clone()))
            }
            Content::Scalar(Value::String(text)) => {
                self.say(node, path, hints::wrong_pattern(text, hints::QUANTITY_PATTERN));
                None
            }
            _ => {
                self.say(node, path, hints::wrong_type(node, "string", &Value::Null));
                None
            }
        }
    }
}

pub(super) fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

/// A pattern that cannot be compiled refuses nothing here; a test compiles them all.
fn matches(pattern: &str, text: &str) -> bool {
    Regex::new(pattern).map_or(true, |regex| regex.is_match(text))
}
