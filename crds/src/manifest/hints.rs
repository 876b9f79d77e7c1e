//! The sentences: what is wrong with a value and what to write instead.

use serde_json::{Map, Value};

use super::tree::{Content, Node};
use crate::{behaviour, exposure, pod, refs, store, units};

pub(super) const QUANTITY_PATTERN: &str = r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?$";

/// What each pattern asks for, in words. A test finds the pattern that was forgotten here.
pub(super) const PATTERNS: &[(&str, &str)] = &[
    (units::DURATION_PATTERN, "is not a duration; write a number and a unit, such as 500ms, 6s, 10m or 720h"),
    (units::SIZE_PATTERN, "is not a size; write a number and a unit, such as 512Ki, 64Mi or 1Gi"),
    (
        QUANTITY_PATTERN,
        "is not a quantity; write a number, with a unit where it needs one, such as 100m or 64Mi",
    ),
    (refs::OBJECT_NAME_PATTERN, "cannot be an object's name; use lower-case letters, digits, '-' and '.'"),
    (refs::DATA_KEY_PATTERN, "cannot be a key; use letters, digits, '-', '_' and '.'"),
    (refs::HEADER_PATTERN, "cannot be a header's name; use letters, digits and '-'"),
    (refs::HTTP_URL_PATTERN, "is not a URL we can use; write http://host/… or https://host/…"),
    (refs::REDIS_URL_PATTERN, "is not a Redis URL; write redis://host:6379/0 or rediss://host:6379/0"),
    (store::KEY_PREFIX_PATTERN, "cannot begin a key; use letters, digits, '.', '-' and '_'"),
    (behaviour::TOOL_SERVER_NAME_PATTERN, "cannot be a name here; use lower-case letters, digits and '-'"),
    (pod::ENV_NAME_PATTERN, "cannot be a variable's name; use letters, digits and '_', not a digit first"),
    (pod::CIDR_PATTERN, "is not a range of addresses; write it as 203.0.113.0/24"),
    (exposure::HOSTNAME_PATTERN, "is not a host name; write it as support.example.com or *.example.com"),
    (exposure::PATH_PREFIX_PATTERN, "is not a path; begin it with '/' and do not end it with one"),
    (pod::MOUNT_PATH_PATTERN, "is not a path to mount at; begin it with '/' and leave out ':'"),
];

pub(super) fn wrong_pattern(text: &str, pattern: &str) -> String {
    let told = PATTERNS.iter().find(|(known, _)| *known == pattern);
    format!("{text:?} {}", told.map_or("is not of the form this field asks for", |(_, words)| words))
}

pub(super) fn unknown_field(key: &str, known: Option<&Map<String, Value>>) -> String {
    let known: Vec<&str> = known.into_iter().flat_map(Map::keys).map(String::as_str).collect();
    match nearest(key, &known) {
        Some(near) => format!("there is no such field; did you mean {near}?"),
        None if known.is_empty() => "there is no such field; remove it".to_owned(),
        None => format!("there is no such field; write {}, or remove it", listed(&known)),
    }
}

pub(super) fn unknown_value(text: &str, known: &[&str]) -> String {
    format!("{text:?} is not known; write {}", listed(known))
}

pub(super) fn missing_field(name: &str, schema: &Value) -> String {
    match schema["enum"].as_array() {
        Some(values) => {
            let known: Vec<&str> = values.iter().filter_map(Value::as_str).collect();
            format!("{name} is missing; write {}", listed(&known))
        }
        None => format!("{name} is missing; add it"),
    }
}

pub(super) fn out_of_range(value: &Value, low: Option<f64>, high: Option<f64>) -> String {
    match (low, high) {
        (Some(low), Some(high)) => format!("{value} is out of range; write {low} to {high}"),
        (Some(low), None) => format!("{value} is too small; write at least {low}"),
        (None, Some(high)) => format!("{value} is too large; write at most {high}"),
        (None, None) => format!("{value} is out of range"),
    }
}

pub(super) fn wrong_type(node: &Node, expected: &str, schema: &Value) -> String {
    let found = shown(node);
    let quote = |value: &Value| format!("{found} is not a text; put it into quotes: \"{value}\"");
    match (expected, &node.content) {
        ("string", Content::Scalar(_)) if schema["pattern"] == units::DURATION_PATTERN => {
            format!("{found} has no unit; write it as a duration, such as {found}s")
        }
        ("string", Content::Scalar(_)) if schema["pattern"] == units::SIZE_PATTERN => {
            format!("{found} has no unit; write it as a size, such as {found}Mi, or \"{found}\" for bytes")
        }
        ("string", Content::Scalar(Value::Bool(_))) if schema["enum"].is_array() => {
            let values = schema["enum"].as_array().into_iter().flatten().filter_map(Value::as_str);
            unknown_value(&found, &values.collect::<Vec<_>>())
        }
        ("string", Content::Scalar(value)) => quote(value),
        ("string", _) => format!("{found} stands where a text belongs"),
        ("integer", _) => format!("{found} is not a whole number"),
        ("number", _) => format!("{found} is not a number"),
        ("boolean", _) => format!("{found} is neither true nor false"),
        ("array", _) => format!("{found} stands where a list belongs; begin each item with '- '"),
        _ => format!("{found} stands where a block of fields belongs"),
    }
}

pub(super) fn shown(node: &Node) -> String {
    match &node.content {
        Content::Scalar(Value::String(text)) if text.chars().count() > 40 => {
            format!("\"{}…\"", text.chars().take(40).collect::<String>())
        }
        Content::Scalar(value) => value.to_string(),
        Content::List(_) => "a list".to_owned(),
        Content::Map(_) => "a block of fields".to_owned(),
    }
}

fn listed(known: &[&str]) -> String {
    match known {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}

/// The known word that was probably meant.
fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let plain = |text: &str| text.replace(['_', '-'], "").to_lowercase();
    let word = plain(word);
    let allowed = (word.len() / 3).clamp(1, 3);
    known
        .iter()
        .map(|candidate| (distance(&word, &plain(candidate)), *candidate))
        .filter(|(distance, _)| *distance <= allowed)
        .min()
        .map(|(_, candidate)| candidate)
}

/// Levenshtein's.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, left) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, right) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(left != *right);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
