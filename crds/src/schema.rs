//! The CustomResourceDefinition as it is installed: what the derive makes of the types, with the rules
//! attached and every string, list and map bounded.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt as _;
use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value, json};

use crate::{agent::Agent, rules};

/// Bounds for fields borrowed from Kubernetes' own types, which state none. Ours state theirs.
const BORROWED_STRING: u64 = 1024;
const BORROWED_LIST: u64 = 32;
const BORROWED_MAP: u64 = 64;

/// Lists whose items are told apart by a field, so that two appliers can own one item each.
const LISTS_BY_KEY: &[(&str, &str)] = &[
    ("spec.tools", "name"),
    ("spec.tools[].mcp.headersFrom", "name"),
    ("spec.model.headersFrom", "name"),
    ("spec.companions", "name"),
    ("spec.companions[].env", "name"),
    ("spec.podTemplate.env", "name"),
    ("spec.podTemplate.volumes", "name"),
    ("spec.podTemplate.imagePullSecrets", "name"),
    ("status.conditions", "type"),
];

const SETS: &[&str] = &["spec.tools[].mcp.allow", "spec.companions[].volumes"];

/// An object with fields we know nothing of.
pub(crate) fn any_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

/// The definition to install.
pub fn crd() -> Result<CustomResourceDefinition, serde_json::Error> {
    let mut crd = Agent::crd();
    for version in &mut crd.spec.versions {
        if let Some(validation) = version.schema.as_mut() {
            validation.open_api_v3_schema = Some(serde_json::from_value(schema()?)?);
        }
    }
    Ok(crd)
}

/// The schema of an Agent, the one source of what a manifest may say.
pub fn schema() -> Result<Value, serde_json::Error> {
    let derived = Agent::crd()
        .spec
        .versions
        .into_iter()
        .find_map(|version| version.schema.and_then(|validation| validation.open_api_v3_schema));
    let mut schema = serde_json::to_value(derived)?;
    tidy(&mut schema);
    describe_lists(&mut schema);
    rules::attach(&mut schema);
    Ok(schema)
}

/// The part of a schema that a path such as `spec.tools[].mcp.url` names.
pub fn at<'a>(schema: &'a mut Value, path: &str) -> Option<&'a mut Map<String, Value>> {
    let mut part = schema;
    for step in path.split('.').filter(|step| !step.is_empty()) {
        let name = step.trim_end_matches("[]");
        part = part.get_mut("properties")?.get_mut(name)?;
        if step.ends_with("[]") {
            part = part.get_mut("items")?;
        }
    }
    part.as_object_mut()
}

fn tidy(schema: &mut Value) {
    let Value::Object(fields) = schema else { return };
    // An absent field is left out, never null.
    fields.remove("nullable");
    if fields.get("default").is_some_and(Value::is_null) {
        fields.remove("default");
    }
    // Formats that Kubernetes does not know only earn a warning; the bounds say the same.
    if fields.get("format").and_then(Value::as_str).is_some_and(|format| format.starts_with("uint")) {
        fields.remove("format");
        fields.entry("minimum").or_insert(json!(0));
    }
    let kind = fields.get("type").and_then(Value::as_str).map(str::to_owned);
    match kind.as_deref() {
        Some("string") if !fields.contains_key("enum") => {
            fields.entry("maxLength").or_insert(json!(BORROWED_STRING));
        }
        Some("array") => {
            fields.entry("maxItems").or_insert(json!(BORROWED_LIST));
        }
        Some("object") if fields.contains_key("additionalProperties") => {
            fields.entry("maxProperties").or_insert(json!(BORROWED_MAP));
        }
        _ => {}
    }
    if let Some(Value::Object(properties)) = fields.get_mut("properties") {
        properties.values_mut().for_each(tidy);
    }
    for inner in ["items", "additionalProperties"] {
        if let Some(part) = fields.get_mut(inner) {
            tidy(part);
        }
    }
}

fn describe_lists(schema: &mut Value) {
    for (path, key) in LISTS_BY_KEY {
        if let Some(list) = at(schema, path) {
            list.insert("x-kubernetes-list-type".into(), json!("map"));
            list.insert("x-kubernetes-list-map-keys".into(), json!([key]));
        }
    }
    for path in SETS {
        if let Some(list) = at(schema, path) {
            list.insert("x-kubernetes-list-type".into(), json!("set"));
        }
    }
}
