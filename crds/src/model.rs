//! `spec.model`: which model answers, how it is reached, and the Scripted model's script.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    refs::{CertificatesFrom, HTTP_URL_PATTERN, HeaderFrom, SecretKeyRef},
    units::Duration,
};

/// The model that answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Model {
    /// The protocol the model is spoken to with. `OpenAI` is OpenAI and every server compatible with its Chat
    /// Completions (vLLM, Ollama, …): point `baseUrl` there. `Scripted` is built in, needs no network and
    /// answers from `scripted`: for demos and tests.
    pub provider: Provider,
    /// The model's name as its provider knows it, for example `gpt-4o-mini`. Not needed for Scripted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub name: Option<String>,
    /// Where the provider's API is, up to and including its version, for example `http://vllm.models:8000/v1`.
    /// Absent: the provider's public address. No user name or password in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048), regex(pattern = HTTP_URL_PATTERN))]
    pub base_url: Option<String>,
    /// The Secret key that holds the API key. Needed wherever `baseUrl` is absent. A rotated key is used
    /// without a gap: the pods are rolled one by one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key_secret_ref: Option<SecretKeyRef>,
    /// How many tokens fit into one request to this model. Set it to what your model has.
    #[serde(default = "default_context_window")]
    #[schemars(range(min = 1024, max = 100_000_000))]
    pub context_window: u32,
    /// How long one request to the model may take, from sending to its last token, before it is tried again.
    #[serde(default = "default_request_timeout")]
    pub request_timeout: Duration,
    /// Sampling parameters. What is absent is left to the provider.
    #[serde(default, skip_serializing_if = "Parameters::is_empty")]
    pub parameters: Parameters,
    /// Fields added to the body of every request as they are, for what only your provider knows.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "crate::schema::any_object")]
    pub extra_body: BTreeMap<String, Value>,
    /// Headers added to every request. For a header whose value is a secret use `headersFrom`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    pub extra_headers: BTreeMap<String, String>,
    /// Headers added to every request whose values are read from Secrets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub headers_from: Vec<HeaderFrom>,
    /// Certificate authorities to trust for `baseUrl` beside the public ones, as PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_bundle_from: Option<CertificatesFrom>,
    /// What the Scripted model says. Only with `provider: Scripted`; without it the model repeats what it heard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scripted: Option<Script>,
}

/// The protocol a model is spoken to with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Provider {
    OpenAI,
    Anthropic,
    Scripted,
}

/// Sampling parameters.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Parameters {
    /// Higher is more varied. 0 is as repeatable as the provider can be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0, max = 2.0))]
    pub temperature: Option<f64>,
    /// Sample only from the likeliest tokens whose probabilities add up to this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub top_p: Option<f64>,
    /// The longest answer, in tokens, that one request may produce.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000_000))]
    pub max_tokens: Option<u32>,
    /// Texts that end an answer where they appear.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 256)))]
    pub stop: Vec<String>,
    /// Asks the provider for the same answer to the same request, where it can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<i64>,
}

impl Parameters {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// What the Scripted model says.
///
/// The first `match` that is part of the last user message is chosen; replies with that same `match` follow each
/// other, one for each time the model is asked since that message, and then the tools' results are repeated. If
/// none fits, the replies without a `match` take turns, counted by the assistant messages in the session.
/// With no replies it says `You said: …` and how many earlier turns it remembers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Script {
    /// The replies, in the order in which they are tried.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub replies: Vec<ScriptedReply>,
}

/// One answer of the Scripted model: a text, tool calls, both, or a failure.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScriptedReply {
    /// Give this reply only when the last user message contains this text.
    #[serde(default, rename = "match", skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub matches: Option<String>,
    /// The text of the answer, streamed word by word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 65536))]
    pub text: Option<String>,
    /// Tools the answer asks to be called.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub tool_calls: Vec<ScriptedToolCall>,
    /// How long to wait before the first token, to stand for a slow model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<Duration>,
    /// How long to wait between tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_delay: Option<Duration>,
    /// Fail like a provider instead of answering.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<ScriptedFailure>,
}

/// A tool call the Scripted model asks for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScriptedToolCall {
    /// The tool's name.
    #[schemars(length(min = 1, max = 128))]
    pub name: String,
    /// Its arguments.
    #[serde(default)]
    #[schemars(schema_with = "crate::schema::any_object")]
    pub input: serde_json::Map<String, Value>,
}

/// A provider's failure, played.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScriptedFailure {
    /// The HTTP status the provider would have answered with: 429 and 5xx are tried again, other 4xx are not.
    #[schemars(range(min = 400, max = 599))]
    pub status: u16,
    /// The message the provider would have given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub message: Option<String>,
    /// How many requests in a row fail before the rest of this reply is given. Absent: every one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub times: Option<u32>,
}

fn default_context_window() -> u32 {
    128_000
}

fn default_request_timeout() -> Duration {
    Duration::from_secs(120)
}
