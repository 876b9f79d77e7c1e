//! rules
pub(crate) fn attach(_schema: &mut serde_json::Value) {}
