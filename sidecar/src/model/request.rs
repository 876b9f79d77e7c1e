//! What protocols share in putting a request together.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use serde::Serialize;
use serde_json::{Map, Value};

use super::Ask;
use crate::tools::ToolSpec;

/// Appends `value` as JSON.
pub(super) fn put(out: &mut Vec<u8>, value: &(impl Serialize + ?Sized)) {
    // Writing to a Vec does not fail, and JSON can say every value we have.
    let _ = serde_json::to_writer(out, value);
}

/// The fields every request begins with, as `{"a":1,"b":2` without an end. `extra` wins over `own`; what is in
/// `reserved` is the caller's alone.
pub(super) fn opening(own: Map<String, Value>, extra: Map<String, Value>, reserved: &[&str]) -> Bytes {
    let mut fields = own;
    fields.extend(extra);
    fields.retain(|name, _| !reserved.contains(&name.as_str()));
    let mut out = Vec::new();
    put(&mut out, &fields);
    out.pop();
    out.into()
}

/// What a request says before its messages: the same from call to call until the prompt or the tools change, so it is
/// made once and kept.
#[derive(Default)]
pub(super) struct Preamble {
    kept: Mutex<Option<Kept>>,
}

struct Kept {
    system: Option<Arc<str>>,
    tools: Vec<ToolSpec>,
    variant: u8,
    bytes: Bytes,
}

impl Preamble {
    /// `variant` tells apart what `make` may say for the same prompt and tools.
    pub(super) fn get(&self, ask: &Ask<'_>, variant: u8, make: impl FnOnce() -> Bytes) -> Bytes {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kept) = kept.as_ref()
            && kept.variant == variant
            && kept.system.as_deref() == ask.system
            && same_tools(&kept.tools, ask.tools)
        {
            return kept.bytes.clone();
        }
        let bytes = make();
        *kept = Some(Kept {
            system: ask.system.map(Arc::from),
            tools: ask.tools.to_vec(),
            variant,
            bytes: bytes.clone(),
        });
        bytes
    }
}

fn same_tools(kept: &[ToolSpec], asked: &[ToolSpec]) -> bool {
    let same = |(kept, asked): (&ToolSpec, &ToolSpec)| {
        Arc::ptr_eq(&kept.schema, &asked.schema)
            && kept.name == asked.name
            && kept.description == asked.description
    };
    kept.len() == asked.len() && kept.iter().zip(asked).all(same)
}

/// Where an image is, as a URL every provider reads, or its type and data.
pub(super) enum ImageSource<'a> {
    Url(&'a str),
    Data { media_type: &'a str, data: &'a str },
}

impl<'a> ImageSource<'a> {
    pub(super) fn of(source: &'a Value) -> Option<Self> {
        let text = |name: &str| source.get(name).and_then(Value::as_str);
        if let Some(url) = text("url") {
            return Some(Self::Url(url));
        }
        let media_type = text("media_type").or_else(|| text("mediaType")).unwrap_or("image/png");
        Some(Self::Data { media_type, data: text("data")? })
    }
}

/// What stands for a block the provider has no words for.
pub(super) fn left_out(kind: &str) -> String {
    format!("[a block of type {kind} was left out: this model cannot be sent one]")
}
