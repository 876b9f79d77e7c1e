//! Chat Completions, of OpenAI and of everything that speaks like it.

mod read;
mod render;

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use bytes::Bytes;
use holdfast_crds::Model as Manifest;
use http::Uri;
use serde_json::{Map, Value, json};

use super::provider::Protocol;
use super::request::{Preamble, opening, put};
use super::{Ask, ModelConfigError, ModelError, ModelReply, endpoint, unreadable};
use crate::outbound::Spliced;

const PUBLIC: &str = "https://api.openai.com/v1";
/// Fields a manifest's `extraBody` cannot set: the answer would no longer be what was asked for.
const RESERVED: [&str; 3] = ["messages", "stream", "n"];

pub(super) struct OpenAi {
    uri: Uri,
    /// By whether the limit of an answer is called `max_completion_tokens`.
    openings: [Bytes; 2],
    preamble: Preamble,
    stream_options_given: bool,
    /// What this server turned out to want, learnt from its refusals.
    newer_limit_name: AtomicBool,
    no_stream_options: AtomicBool,
}

impl OpenAi {
    pub(super) fn new(manifest: &Manifest) -> Result<Self, ModelConfigError> {
        let uri = endpoint(manifest.base_url.as_deref().unwrap_or(PUBLIC), "/chat/completions")?;
        let name = manifest.name.clone().unwrap_or_default();
        let newer = is_openai(&uri) || has_newer_name(&name);
        let extra: Map<String, Value> = manifest.extra_body.clone().into_iter().collect();
        let opening_with = |limit_name: &str| {
            let mut own = Map::from_iter([("model".to_owned(), json!(name))]);
            let parameters = &manifest.parameters;
            let mut set = |name: &str, value: Option<Value>| {
                if let Some(value) = value {
                    own.insert(name.to_owned(), value);
                }
            };
            set("temperature", parameters.temperature.map(|value| json!(value)));
            set("top_p", parameters.top_p.map(|value| json!(value)));
            set("seed", parameters.seed.map(|value| json!(value)));
            set("stop", (!parameters.stop.is_empty()).then(|| json!(parameters.stop)));
            let limited_by_hand =
                ["max_tokens", "max_completion_tokens"].iter().any(|n| extra.contains_key(*n));
            set(limit_name, parameters.max_tokens.filter(|_| !limited_by_hand).map(|value| json!(value)));
            opening(own, extra.clone(), &RESERVED)
        };
        Ok(Self {
            uri,
            openings: [opening_with("max_tokens"), opening_with("max_completion_tokens")],
            preamble: Preamble::default(),
            stream_options_given: extra.contains_key("stream_options"),
            newer_limit_name: AtomicBool::new(newer),
            no_stream_options: AtomicBool::new(false),
        })
    }

    /// Everything up to the history, starting with `{` and ending inside `"messages":[`.
    fn before_history(&self, ask: &Ask<'_>, stream: bool) -> Bytes {
        let newer = self.newer_limit_name.load(Relaxed);
        let usage = stream && !self.stream_options_given && !self.no_stream_options.load(Relaxed);
        let variant = u8::from(newer) | u8::from(stream) << 1 | u8::from(usage) << 2;
        self.preamble.get(ask, variant, || {
            let mut out = self.openings[usize::from(newer)].to_vec();
            if stream {
                out.extend_from_slice(b",\"stream\":true");
            }
            if usage {
                out.extend_from_slice(b",\"stream_options\":{\"include_usage\":true}");
            }
            if !ask.tools.is_empty() {
                out.extend_from_slice(b",\"tools\":[");
                for (index, tool) in ask.tools.iter().enumerate() {
                    out.extend_from_slice(if index == 0 { b"" } else { b"," });
                    render::tool(&mut out, tool);
                }
                out.push(b']');
            }
            out.extend_from_slice(b",\"messages\":[");
            if let Some(system) = ask.system {
                out.extend_from_slice(b"{\"role\":\"system\",\"content\":");
                put(&mut out, system);
                out.push(b'}');
            }
            out.into()
        })
    }
}

/// What must wait: a user message between two tool results would part the second from its call.
#[derive(Default)]
struct Postponed(Vec<Bytes>);

impl Postponed {
    fn say(&mut self, rendered: &Bytes, mut push: impl FnMut(Bytes)) {
        let parts = render::parts(rendered);
        if !parts.is_tool {
            self.0.drain(..).for_each(&mut push);
        }
        push(parts.messages);
        self.0.extend((!parts.after.is_empty()).then_some(parts.after));
    }
}

impl Protocol for OpenAi {
    type Assembly = read::Assembly;

    fn uri(&self) -> &Uri {
        &self.uri
    }

    /// The history is copied as the bytes it was rendered to once; nothing of it is looked at again.
    fn body(&self, ask: &Ask<'_>, stream: bool) -> Result<Spliced, ModelError> {
        let mut postponed = Postponed::default();
        let mut history = ask.rendering.of(ask.history);
        let fresh = &ask.history[history.count..];
        for entry in fresh {
            let rendered = entry.take_rendered(render::message).map_err(|error| unreadable(&error))?;
            postponed.say(&rendered, |piece| history.said.push(piece));
        }
        history.count += fresh.len();
        if !fresh.is_empty() && postponed.0.is_empty() {
            ask.rendering.keep(ask.history, &history);
        }
        let mut pieces = Vec::with_capacity(history.said.len() + ask.turn.len() + 4);
        pieces.push(self.before_history(ask, stream));
        pieces.extend(history.said.pieces());
        let mut push = |piece: Bytes| pieces.extend((!piece.is_empty()).then_some(piece));
        for entry in ask.turn {
            let rendered = entry.rendered(render::message).map_err(|error| unreadable(&error))?;
            postponed.say(&rendered, &mut push);
        }
        postponed.0.into_iter().for_each(push);
        // Every rendered message brings the comma before it.
        if let Some(first) = pieces.get_mut(1).filter(|_| ask.system.is_none()) {
            *first = first.slice(1..);
        }
        pieces.push(Bytes::from_static(b"]}"));
        Ok(Spliced::new(pieces))
    }

    fn whole(&self, body: &[u8]) -> Result<ModelReply, ModelError> {
        read::whole(body)
    }

    fn assembly(&self) -> read::Assembly {
        read::Assembly::default()
    }

    fn adapts_to(&self, refusal: &str) -> bool {
        if refusal.contains("stream_options") && !self.stream_options_given {
            return !self.no_stream_options.swap(true, Relaxed);
        }
        if refusal.contains("max_completion_tokens") && refusal.contains("max_tokens") {
            return !self.newer_limit_name.swap(true, Relaxed);
        }
        if refusal.contains("max_completion_tokens") {
            return self.newer_limit_name.swap(false, Relaxed);
        }
        false
    }
}

/// OpenAI itself wants the newer name of the limit; most servers like it know only the older one.
fn is_openai(uri: &Uri) -> bool {
    let host = uri.host().unwrap_or_default();
    host == "api.openai.com" || host.ends_with(".openai.azure.com")
}

/// Models that refuse the older name, also behind a gateway.
fn has_newer_name(model: &str) -> bool {
    let name = model.rsplit('/').next().unwrap_or_default();
    ["o1", "o3", "o4", "gpt-5"].iter().any(|family| name.starts_with(family))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Rendering;
    use crate::state::{Entry, Message};
    use std::sync::Arc;

    #[test]
    fn a_history_is_rendered_once_and_shared_by_every_request_after() {
        let manifest =
            serde_json::from_value(json!({"provider": "OpenAI", "name": "x"})).expect("a manifest");
        let model = OpenAi::new(&manifest).expect("a model");
        let history: Vec<Entry> =
            (0..1000).map(|n| Entry::new(Message::user(format!("{n} {}", "x".repeat(400))))).collect();
        let (context, rendering) = (Arc::default(), Rendering::default());
        let ask = |rendered: usize| Ask {
            system: Some("Be kind."),
            history: &history[..rendered],
            rendering: &rendering,
            turn: &[],
            tools: &[],
            pieces: None,
            context: &context,
        };
        let body = |messages| model.body(&ask(messages), false).expect("a body");
        let first = body(998);
        assert!(first.shares_with(&body(998)), "nothing was copied to put the second request together");
        let anew = OpenAi::new(&manifest).expect("a model");
        let begun = Rendering::default();
        let whole = anew.body(&Ask { rendering: &begun, ..ask(1000) }, false).expect("a body");
        assert_eq!(body(1000).concat(), whole.concat(), "what is new is said after what was said before");
    }
}
