//! What the agent does, as spans, with the names of OpenTelemetry's conventions for generative AI.
//!
//! ```text
//! POST /v1/calls        one a request: where a trace begins, or joins its caller's
//!   └ invoke_agent      one a run of a call; that of a takeover is in the same trace
//!       ├ chat          one a reply, however often the provider was asked for it
//!       └ execute_tool
//! ```
//!
//! A span's place travels as `traceparent` in the call's own context. The context is stored with the call, so a trace
//! survives a takeover; and it is what models and tools are shown, so they join it. There is no global and nothing of a
//! thread's. Where no endpoint is set nothing is made, and the caller's own `traceparent` goes through untouched.

mod export;
mod place;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use holdfast_crds::{Agent, Model as Manifest, Provider};
use opentelemetry::trace::{Span as _, SpanBuilder, SpanKind, Status, TraceContextExt, Tracer as _};
use opentelemetry::{Array, Context, KeyValue, StringValue, Value};
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};

pub use export::from_env;
pub use place::is_valid;
use place::traceparent;

use crate::model::{CallContext, ModelReply};
use crate::state::{CallId, Slot};

/// Attributes a caller may add to its spans, and bytes of each: what comes in a request must not grow what goes out.
const MAX_CALLER_ATTRIBUTES: usize = 32;
const MAX_CALLER_VALUE: usize = 256;

/// Makes spans, or does not. Cheap to clone.
#[derive(Clone, Default)]
pub struct Traces(Option<Arc<Exporting>>);

struct Exporting {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
    agent: About,
    /// What was said may be sent too: somebody asked for it in the environment.
    content: bool,
}

/// What every span of one kind says, told once.
struct About {
    invoke_agent: (String, Vec<KeyValue>),
    chat: (String, Vec<KeyValue>),
}

impl fmt::Debug for Traces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Traces(on)" } else { "Traces(off)" })
    }
}

impl Traces {
    fn new(agent: &Agent, replica: &str, provider: SdkTracerProvider, content: bool) -> Self {
        use opentelemetry::trace::TracerProvider;
        let tracer = provider.tracer("holdfast");
        Self(Some(Arc::new(Exporting { provider, tracer, agent: About::new(agent, replica), content })))
    }

    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// A request that starts a call or goes on with one.
    pub fn request(&self, route: &'static str, context: &CallContext) -> Span {
        self.start(context, SpanKind::Server, |_| {
            let attributes = vec![
                KeyValue::new("http.request.method", "POST"),
                KeyValue::new("http.route", route),
                KeyValue::new("url.scheme", "http"),
            ];
            (format!("POST {route}"), attributes)
        })
    }

    /// One run of one call.
    pub fn invoke_agent(&self, slot: &Slot, call: &CallId, resumes: u32, context: &CallContext) -> Span {
        self.start(context, SpanKind::Internal, |on| {
            let (name, mut attributes) = on.agent.invoke_agent.clone();
            attributes.extend([
                KeyValue::new("gen_ai.conversation.id", slot.session.as_str().to_owned()),
                KeyValue::new("holdfast.call.id", call.as_str().to_owned()),
                KeyValue::new("holdfast.call.resumes", i64::from(resumes)),
            ]);
            if let Some(user) = &slot.user {
                attributes.push(KeyValue::new("user.id", user.as_str().to_owned()));
            }
            if let Some(request) = &context.request_id {
                attributes.push(KeyValue::new("holdfast.request.id", bounded(request.clone())));
            }
            for (name, value) in context.attributes.iter().take(MAX_CALLER_ATTRIBUTES) {
                let value = match value {
                    serde_json::Value::String(text) => Value::from(bounded(text.clone())),
                    serde_json::Value::Bool(flag) => Value::from(*flag),
                    other => Value::from(bounded(other.to_string())),
                };
                let name = bounded(format!("holdfast.call.attribute.{name}"));
                attributes.push(KeyValue::new(name, value));
            }
            (name, attributes)
        })
    }

    /// One reply of the model.
    pub fn chat(&self, context: &CallContext) -> Span {
        self.start(context, SpanKind::Client, |on| on.agent.chat.clone())
    }

    /// One tool call.
    pub fn execute_tool(&self, tool: &str, id: &str, context: &CallContext) -> Span {
        self.start(context, SpanKind::Internal, |_| {
            let attributes = vec![
                KeyValue::new("gen_ai.operation.name", "execute_tool"),
                KeyValue::new("gen_ai.tool.name", tool.to_owned()),
                KeyValue::new("gen_ai.tool.call.id", id.to_owned()),
                KeyValue::new("gen_ai.tool.type", "function"),
            ];
            (format!("execute_tool {tool}"), attributes)
        })
    }

    fn start(
        &self,
        context: &CallContext,
        kind: SpanKind,
        describe: impl FnOnce(&Exporting) -> (String, Vec<KeyValue>),
    ) -> Span {
        let Some(on) = &self.0 else { return Span(None) };
        let (name, attributes) = describe(on);
        let parent = match place::read(context) {
            Some(parent) => Context::new().with_remote_span_context(parent),
            None => Context::new(),
        };
        let span = SpanBuilder::from_name(name).with_kind(kind).with_attributes(attributes);
        let span = on.tracer.build_with_context(span, &parent);
        Span(Some(Box::new(Open { span, content: on.content })))
    }

    /// Sends what has not been sent, and no more after that. Never for longer than `within`.
    pub async fn finish(&self, within: Duration) {
        let Some(on) = self.0.clone() else { return };
        // The provider waits for its own thread, so it is waited for on one.
        let sent = tokio::task::spawn_blocking(move || on.provider.shutdown_with_timeout(within));
        match tokio::time::timeout(within, sent).await {
            Ok(Ok(Ok(()))) => {}
            Ok(Ok(Err(error))) => tracing::warn!("the last spans were not sent: {error}"),
            Ok(Err(_)) | Err(_) => tracing::warn!("the last spans were not sent in time"),
        }
    }
}

/// A span in the making; it ends when it is dropped.
#[derive(Default)]
pub struct Span(Option<Box<Open>>);

struct Open {
    span: opentelemetry_sdk::trace::Span,
    content: bool,
}

impl Span {
    /// `context` as whoever works inside this span is to be shown it.
    pub fn within(&self, context: &Arc<CallContext>) -> Arc<CallContext> {
        match self.traceparent() {
            None => Arc::clone(context),
            Some(traceparent) => {
                Arc::new(CallContext { traceparent: Some(traceparent), ..CallContext::clone(context) })
            }
        }
    }

    pub fn traceparent(&self) -> Option<String> {
        self.0.as_ref().map(|open| traceparent(open.span.span_context()))
    }

    pub fn set(&mut self, name: &'static str, value: impl Into<Value>) {
        if let Some(open) = &mut self.0 {
            open.span.set_attribute(KeyValue::new(name, value));
        }
    }

    /// It came to no good end; `kind` is one of few.
    pub fn fail(&mut self, kind: &str) {
        if let Some(open) = &mut self.0 {
            open.span.set_attribute(KeyValue::new("error.type", kind.to_owned()));
            open.span.set_status(Status::error(""));
        }
    }

    pub fn replied(&mut self, reply: &ModelReply) {
        let Some(open) = &mut self.0 else { return };
        let mut attributes = vec![
            KeyValue::new("gen_ai.response.finish_reasons", list(reply.stop.as_str())),
            KeyValue::new("gen_ai.usage.input_tokens", count(reply.usage.input_tokens)),
            KeyValue::new("gen_ai.usage.output_tokens", count(reply.usage.output_tokens)),
        ];
        if reply.usage.cached_tokens > 0 {
            let cached = count(reply.usage.cached_tokens);
            attributes.push(KeyValue::new("gen_ai.usage.cache_read.input_tokens", cached));
        }
        if let Some(model) = &reply.model {
            attributes.push(KeyValue::new("gen_ai.response.model", model.clone()));
        }
        if let Some(id) = &reply.id {
            attributes.push(KeyValue::new("gen_ai.response.id", id.clone()));
        }
        open.span.set_attributes(attributes);
        self.content("gen_ai.output.messages", || {
            let said = serde_json::json!([{"role": "assistant", "parts": reply.content,
                                           "finish_reason": reply.stop.as_str()}]);
            said.to_string()
        });
    }

    /// What was said, where somebody asked for it.
    pub fn content(&mut self, name: &'static str, said: impl FnOnce() -> String) {
        if let Some(open) = &mut self.0
            && open.content
        {
            open.span.set_attribute(KeyValue::new(name, said()));
        }
    }
}

impl About {
    fn new(agent: &Agent, replica: &str) -> Self {
        let name = crate::config::name(agent).to_owned();
        let model = &agent.spec.model;
        let common = vec![
            KeyValue::new("gen_ai.provider.name", provider(model)),
            KeyValue::new("gen_ai.request.model", model_name(model).to_owned()),
        ];
        let mut invoke_agent = vec![
            KeyValue::new("gen_ai.operation.name", "invoke_agent"),
            KeyValue::new("gen_ai.agent.name", name.clone()),
            KeyValue::new("holdfast.replica", replica.to_owned()),
        ];
        invoke_agent.extend(common.iter().cloned());
        let mut chat = vec![KeyValue::new("gen_ai.operation.name", "chat")];
        chat.extend(common);
        chat.extend(parameters(model));
        chat.extend(server(model));
        Self {
            invoke_agent: (format!("invoke_agent {name}"), invoke_agent),
            chat: (format!("chat {}", model_name(model)), chat),
        }
    }
}

fn provider(model: &Manifest) -> &'static str {
    match model.provider {
        Provider::OpenAI => "openai",
        Provider::Anthropic => "anthropic",
        Provider::Scripted => "holdfast.scripted",
    }
}

fn model_name(model: &Manifest) -> &str {
    model.name.as_deref().unwrap_or("scripted")
}

fn parameters(model: &Manifest) -> Vec<KeyValue> {
    let given = &model.parameters;
    let mut attributes = Vec::new();
    attributes.extend(given.temperature.map(|value| KeyValue::new("gen_ai.request.temperature", value)));
    attributes.extend(given.top_p.map(|value| KeyValue::new("gen_ai.request.top_p", value)));
    attributes
        .extend(given.max_tokens.map(|value| KeyValue::new("gen_ai.request.max_tokens", i64::from(value))));
    if !given.stop.is_empty() {
        let stop = given.stop.iter().cloned().map(StringValue::from).collect();
        attributes.push(KeyValue::new("gen_ai.request.stop_sequences", Value::Array(Array::String(stop))));
    }
    attributes
}

fn server(model: &Manifest) -> Vec<KeyValue> {
    let Some(uri) = model.base_url.as_deref().and_then(|url| url.parse::<http::Uri>().ok()) else {
        return Vec::new();
    };
    let port = uri.port_u16().unwrap_or(if uri.scheme_str() == Some("https") { 443 } else { 80 });
    let host = uri.host().unwrap_or_default().to_owned();
    vec![KeyValue::new("server.address", host), KeyValue::new("server.port", i64::from(port))]
}

fn list(one: &'static str) -> Value {
    Value::Array(Array::String(vec![one.into()]))
}

pub fn count(tokens: u64) -> i64 {
    i64::try_from(tokens).unwrap_or(i64::MAX)
}

fn bounded(mut text: String) -> String {
    if text.len() > MAX_CALLER_VALUE {
        let end = (0..=MAX_CALLER_VALUE).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
        text.truncate(end);
    }
    text
}
