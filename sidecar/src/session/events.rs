//! The JSON of events and journal entries. Names and shapes are the API's.

use bytes::Bytes;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::state::{CallId, ToolResult, ToolUse};
use crate::store::Blob;

/// Bytes of a tool's output that an event carries; all of it is in the result's message.
const OUTPUT_IN_EVENT: usize = 64 << 10;

/// A journal entry: this tool is about to run.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Intent {
    pub tool_use_id: String,
}

pub fn intent(tool_use_id: &str) -> Blob {
    Blob::json(&Intent { tool_use_id: tool_use_id.to_owned() })
}

pub fn timestamp() -> String {
    // Milliseconds are enough to order what people read.
    format!("{:.3}", Timestamp::now())
}

/// An event with nothing to say but which call it is about.
pub fn about(call: &CallId) -> Blob {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct About<'a> {
        call_id: &'a str,
    }
    Blob::json(&About { call_id: call.as_str() })
}

pub fn resumed(call: &CallId, replica: &str) -> Blob {
    Blob::json(&json!({"callId": call, "replica": replica}))
}

pub fn message_delta(call: &CallId, message_id: &str, text: &str) -> Blob {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Delta<'a> {
        call_id: &'a str,
        message_id: &'a str,
        text: &'a str,
    }
    Blob::json(&Delta { call_id: call.as_str(), message_id, text })
}

pub fn message_reset(call: &CallId, message_id: &str) -> Blob {
    message_completed(call, message_id)
}

/// Without the message itself, which the store copies from where it was sent.
pub fn message_completed(call: &CallId, message_id: &str) -> Blob {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Completed<'a> {
        call_id: &'a str,
        message_id: &'a str,
    }
    Blob::json(&Completed { call_id: call.as_str(), message_id })
}

/// The data of an event with the message it carries.
pub fn with_message(data: &Blob, message: &Bytes) -> Blob {
    let mut whole = Vec::with_capacity(data.len() + message.len() + 12);
    whole.extend_from_slice(&data[..data.len().saturating_sub(1)]);
    whole.extend_from_slice(b",\"message\":");
    whole.extend_from_slice(message);
    whole.push(b'}');
    whole.into()
}

pub fn tool_started(call: &CallId, tool_use: &ToolUse) -> Blob {
    Blob::json(
        &json!({"callId": call, "toolCallId": tool_use.id, "name": tool_use.name, "input": tool_use.input}),
    )
}

pub fn tool_finished(call: &CallId, result: &ToolResult) -> Blob {
    let mut output = result.text();
    if output.len() > OUTPUT_IN_EVENT {
        let mut end = OUTPUT_IN_EVENT;
        while !output.is_char_boundary(end) {
            end -= 1;
        }
        output.truncate(end);
    }
    Blob::json(&json!({
        "callId": call, "toolCallId": result.tool_use_id, "name": result.name,
        "isError": result.is_error, "output": output,
    }))
}
