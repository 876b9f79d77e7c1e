//! The Messages API of Anthropic, and of what speaks like it.

mod read;
mod render;

use bytes::Bytes;
use holdfast_crds::Model as Manifest;
use http::{HeaderName, Uri};
use serde_json::{Map, Value, json};

use super::provider::Protocol;
use super::request::{Preamble, opening, put};
use super::{Ask, ModelConfigError, ModelError, ModelReply, endpoint, unreadable};
use crate::outbound::{KeyHeader, Spliced};
use render::Speaker;

const PUBLIC: &str = "https://api.anthropic.com/v1";
pub(super) const VERSION: (HeaderName, &str) = (HeaderName::from_static("anthropic-version"), "2023-06-01");
pub(super) const KEY: KeyHeader = KeyHeader { name: HeaderName::from_static("x-api-key"), prefix: "" };
/// The protocol wants a limit where the manifest has none.
const DEFAULT_MAX_TOKENS: u32 = 8192;
const RESERVED: [&str; 2] = ["messages", "stream"];

pub(super) struct Anthropic {
    uri: Uri,
    opening: Bytes,
    system_given: bool,
    preamble: Preamble,
}

impl Anthropic {
    pub(super) fn new(manifest: &Manifest) -> Result<Self, ModelConfigError> {
        let base = manifest.base_url.as_deref().unwrap_or(PUBLIC);
        // Other clients of this API are given its address without the version.
        let bare = endpoint(base, "")?.path().trim_matches('/').is_empty();
        let uri = endpoint(base, if bare { "/v1/messages" } else { "/messages" })?;
        let parameters = &manifest.parameters;
        let mut own = Map::from_iter([
            ("model".to_owned(), json!(manifest.name.clone().unwrap_or_default())),
            ("max_tokens".to_owned(), json!(parameters.max_tokens.unwrap_or(DEFAULT_MAX_TOKENS))),
        ]);
        let mut set = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                own.insert(name.to_owned(), value);
            }
        };
        set("temperature", parameters.temperature.map(|value| json!(value)));
        set("top_p", parameters.top_p.map(|value| json!(value)));
        set("stop_sequences", (!parameters.stop.is_empty()).then(|| json!(parameters.stop)));
        let extra: Map<String, Value> = manifest.extra_body.clone().into_iter().collect();
        let system_given = extra.contains_key("system");
        Ok(Self { uri, opening: opening(own, extra, &RESERVED), system_given, preamble: Preamble::default() })
    }

    /// Everything up to the history, starting with `{` and ending inside `"messages":[`.
    fn before_history(&self, ask: &Ask<'_>, stream: bool) -> Bytes {
        self.preamble.get(ask, u8::from(stream), || {
            let mut out = self.opening.to_vec();
            if stream {
                out.extend_from_slice(b",\"stream\":true");
            }
            if let Some(system) = ask.system.filter(|system| !system.trim().is_empty() && !self.system_given)
            {
                out.extend_from_slice(b",\"system\":");
                put(&mut out, system);
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
            out.into()
        })
    }
}

fn say(rendered: &Bytes, speaking: &mut Option<Speaker>, mut push: impl FnMut(Bytes)) {
    let Some((speaker, blocks)) = render::parts(rendered) else { return };
    if *speaking == Some(speaker) {
        return push(blocks);
    }
    push(Bytes::from_static(speaker.turn(speaking.is_none())));
    // Every rendered block brings the comma before it.
    push(blocks.slice(1..));
    *speaking = Some(speaker);
}

impl Protocol for Anthropic {
    type Assembly = read::Assembly;

    fn uri(&self) -> &Uri {
        &self.uri
    }

    /// Neighbours of one role become one message: the protocol wants the roles to alternate, and all results of a step
    /// in the one message after it. The blocks themselves are the bytes they were rendered to once.
    fn body(&self, ask: &Ask<'_>, stream: bool) -> Result<Spliced, ModelError> {
        let mut history = ask.rendering.of(ask.history);
        let mut speaking = Speaker::of(history.state);
        let fresh = &ask.history[history.count..];
        for entry in fresh {
            let rendered = entry.take_rendered(render::message).map_err(|error| unreadable(&error))?;
            say(&rendered, &mut speaking, |piece| history.said.push(piece));
        }
        if !fresh.is_empty() {
            (history.count, history.state) = (ask.history.len(), Speaker::state(speaking));
            ask.rendering.keep(ask.history, &history);
        }
        let mut pieces = Vec::with_capacity(history.said.len() + 2 * ask.turn.len() + 4);
        pieces.push(self.before_history(ask, stream));
        pieces.extend(history.said.pieces());
        for entry in ask.turn {
            let rendered = entry.rendered(render::message).map_err(|error| unreadable(&error))?;
            say(&rendered, &mut speaking, |piece| pieces.push(piece));
        }
        pieces.push(Bytes::from_static(if speaking.is_some() { b"]}]}" } else { b"]}" }));
        Ok(Spliced::new(pieces))
    }

    fn whole(&self, body: &[u8]) -> Result<ModelReply, ModelError> {
        read::whole(body)
    }

    fn assembly(&self) -> read::Assembly {
        read::Assembly::default()
    }
}
