//! What the wire tests of models share.

// A `json!` is written where it is used.
#![allow(clippy::needless_pass_by_value)]
// Not every suite uses everything.
#![allow(dead_code)]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use holdfast_crds::Agent;
use holdfast_sidecar::model::{
    Ask, CallContext, Model, ModelError, ModelReply, Piece, Rendering, from_manifest,
};
use holdfast_sidecar::secrets::Secrets;
use holdfast_sidecar::state::{Block, Entry, Message};
use holdfast_sidecar::tools::{Safety, ToolSpec};
use serde_json::{Value, json};
use tokio::sync::mpsc;

/// Secrets that a test may change while they are in use, by the variable they would be in.
#[derive(Clone, Default)]
pub struct Vault(Arc<Mutex<BTreeMap<String, String>>>);

impl Vault {
    pub fn put(&self, variable: &str, value: &str) {
        self.0.lock().expect("the vault").insert(variable.into(), value.into());
    }

    pub fn secrets(&self) -> Secrets {
        let vault = self.clone();
        Secrets::new(None, None, move |name| vault.0.lock().expect("the vault").get(name).cloned())
    }
}

pub fn agent(model: Value) -> Agent {
    let manifest = json!({
        "apiVersion": "holdfast.dev/v1alpha1", "kind": "Agent", "metadata": {"name": "test"}, "spec": {"model": model},
    });
    serde_json::from_value(manifest).expect("a manifest")
}

pub fn model(model: Value) -> Arc<dyn Model> {
    let vault = Vault::default();
    vault.put("HOLDFAST_SECRET_LLM_KEY", "sk-test");
    from_manifest(&agent(model), &vault.secrets()).expect("a model")
}

/// A question with everything at its default; change what the test is about.
pub struct Question {
    pub system: Option<String>,
    pub history: Vec<Entry>,
    pub tools: Vec<ToolSpec>,
    pub stream: bool,
    pub context: Arc<CallContext>,
}

impl Question {
    pub fn new(history: impl IntoIterator<Item = Message>) -> Self {
        Self {
            system: None,
            history: history.into_iter().map(Entry::new).collect(),
            tools: Vec::new(),
            stream: false,
            context: Arc::default(),
        }
    }

    pub fn user(text: &str) -> Self {
        Self::new([Message::user(text)])
    }

    pub fn streamed(mut self) -> Self {
        self.stream = true;
        self
    }

    pub fn tool(mut self, name: &str) -> Self {
        let schema = r#"{"type":"object","properties":{"n":{"type":"integer"}}}"#;
        let schema: Arc<serde_json::value::RawValue> =
            serde_json::value::RawValue::from_string(schema.into()).expect("JSON").into();
        let description = format!("The tool {name}");
        self.tools.push(ToolSpec { name: name.into(), description, schema, safety: Safety::Unsafe });
        self
    }

    pub async fn ask(&self, model: &Arc<dyn Model>) -> Heard {
        let (sender, mut receiver) = mpsc::unbounded_channel();
        let outcome = model
            .reply(Ask {
                system: self.system.as_deref(),
                history: &self.history,
                rendering: &Rendering::default(),
                turn: &[],
                tools: &self.tools,
                pieces: self.stream.then_some(sender),
                context: &self.context,
            })
            .await;
        let mut pieces = Vec::new();
        while let Ok(piece) = receiver.try_recv() {
            pieces.push(piece);
        }
        Heard { outcome, pieces }
    }
}

#[derive(Debug)]
pub struct Heard {
    pub outcome: Result<ModelReply, ModelError>,
    pub pieces: Vec<Piece>,
}

impl Heard {
    pub fn reply(&self) -> &ModelReply {
        self.outcome.as_ref().expect("a reply")
    }

    pub fn error(&self) -> &ModelError {
        self.outcome.as_ref().expect_err("no reply")
    }

    pub fn text(&self) -> String {
        self.reply().content.iter().filter_map(Block::as_text).collect()
    }

    /// What a watcher has before it after the last reset.
    pub fn watched(&self) -> String {
        self.pieces.iter().fold(String::new(), |text, piece| match piece {
            Piece::Text(more) => text + more,
            Piece::Reset => String::new(),
        })
    }

    pub fn resets(&self) -> usize {
        self.pieces.iter().filter(|piece| **piece == Piece::Reset).count()
    }
}
