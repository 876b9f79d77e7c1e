//! Whether arguments are worth sending: an object, with all that the tool's schema requires.

use serde_json::{Map, Value};

/// The arguments, or what to tell the model.
pub(super) fn check(input: &Value, required: &[String]) -> Result<Map<String, Value>, String> {
    let nothing = Map::new();
    let arguments = match input {
        Value::Object(arguments) => arguments,
        Value::Null => &nothing,
        Value::String(text) => {
            let why = serde_json::from_str::<Value>(text).err().map(|error| format!(" ({error})"));
            let why = why.unwrap_or_default();
            return Err(format!(
                "the arguments are not a JSON object{why}; the tool was not called, send an object"
            ));
        }
        _ => {
            return Err("the arguments are not a JSON object; the tool was not called, send an object".into());
        }
    };
    let missing: Vec<&str> =
        required.iter().map(String::as_str).filter(|name| !arguments.contains_key(*name)).collect();
    if missing.is_empty() {
        return Ok(arguments.clone());
    }
    Err(format!(
        "required arguments are missing: {}; the tool was not called, send them too",
        missing.join(", ")
    ))
}

/// What a schema requires at its top.
pub(super) fn required(schema: &Map<String, Value>) -> Vec<String> {
    let names = schema.get("required").and_then(Value::as_array).into_iter().flatten();
    names.filter_map(Value::as_str).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn malformed_arguments_are_told_apart() {
        let required = vec!["order".to_owned(), "reason".to_owned()];
        assert!(check(&json!({"order": 7, "reason": null, "more": 1}), &required).is_ok());
        assert!(check(&Value::Null, &[]).is_ok());
        let missing = check(&json!({"order": 7}), &required).expect_err("missing");
        assert!(missing.contains("missing: reason;"), "{missing}");
        let broken = check(&json!("{\"order\":"), &required).expect_err("broken");
        assert!(broken.contains("not a JSON object (EOF"), "{broken}");
        assert!(check(&json!([1]), &[]).is_err());
    }
}
