//! The files that are made of the types: what is in them and where they are committed.

use crate::schema;

const HEADER: &str = "# Made by `make generate`; change the types in crds/src instead.\n";

#[derive(Debug, thiserror::Error)]
pub enum GenerateError {
    #[error("the schema of an Agent is not JSON: {0}")]
    Schema(#[from] serde_json::Error),
    #[error("the definition of an Agent cannot be written as YAML: {0}")]
    Yaml(#[from] serde_yaml::Error),
}

/// A generated file: its path from the root of the repository, and its text.
pub struct Generated {
    pub path: &'static str,
    pub text: String,
}

pub fn files() -> Result<Vec<Generated>, GenerateError> {
    let mut definition = serde_json::to_value(schema::crd()?)?;
    without_point_zero(&mut definition);
    let plain = format!("{HEADER}{}", serde_yaml::to_string(&definition)?);

    // Deleting the chart must not delete every Agent with it.
    definition["metadata"]["annotations"] = serde_json::json!({"helm.sh/resource-policy": "keep"});
    let kept = serde_yaml::to_string(&definition)?;
    let labels = "  labels:\n    {{- include \"holdfast-crds.labels\" . | nindent 4 }}\n";
    let chart =
        kept.replacen("  name: agents.holdfast.dev\n", &format!("{labels}  name: agents.holdfast.dev\n"), 1);

    Ok(vec![
        Generated { path: "crds/agents.yaml", text: plain },
        Generated { path: "charts/holdfast-crds/templates/agents.yaml", text: format!("{HEADER}{chart}") },
    ])
}

/// `1`, not `1.0`: the API server gives them back without, and a diff would never end.
fn without_point_zero(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::Array(items) => items.iter_mut().for_each(without_point_zero),
        serde_json::Value::Object(fields) => fields.values_mut().for_each(without_point_zero),
        serde_json::Value::Number(number) => {
            let float = number.as_f64().filter(|float| number.is_f64() && float.fract() == 0.0);
            if let Some(whole) = float.and_then(|float| format!("{float:.0}").parse::<i64>().ok()) {
                *number = whole.into();
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_committed_is_what_the_types_say() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for Generated { path, text } in files().unwrap() {
            let committed = std::fs::read_to_string(root.join(path)).unwrap_or_default();
            assert!(committed == text, "{path} is stale: run make generate");
        }
    }

    #[test]
    fn plain_kubectl_apply_takes_it() {
        for Generated { path, text } in files().unwrap() {
            assert!(text.len() < 256 * 1024, "{path} does not fit into kubectl's annotation: {}", text.len());
        }
    }

    #[test]
    fn everything_is_bounded_and_described() {
        fn walk(schema: &serde_json::Value, path: &str) {
            let kind = schema["type"].as_str().unwrap_or_default();
            let bounded = match kind {
                "string" => schema["enum"].is_array() || schema["maxLength"].is_u64(),
                "array" => schema["maxItems"].is_u64(),
                "object" if schema["additionalProperties"].is_object() => schema["maxProperties"].is_u64(),
                _ => true,
            };
            assert!(bounded, "{path} has no bound");
            for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
                let path = format!("{path}.{name}");
                assert!(inner["description"].is_string(), "{path} is not described");
                walk(inner, &path);
            }
            for inner in ["items", "additionalProperties"] {
                if schema[inner].is_object() {
                    walk(&schema[inner], &format!("{path}[]"));
                }
            }
        }
        let schema = schema::schema().unwrap();
        walk(&schema["properties"]["spec"], "spec");
        walk(&schema["properties"]["status"], "status");
    }
}
