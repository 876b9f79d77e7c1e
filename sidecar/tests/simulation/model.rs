//! A model that writes down what it was shown. Its answer carries the number of the question, so that a reply in a
//! history can be held against the transcript it was made from.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use holdfast_sidecar::model::{Ask, Model, ModelError, ModelReply, Piece};
use holdfast_sidecar::state::{Block, Message, Role, ToolUse, Usage, check_pairing};
use holdfast_sidecar::tools::Safety;
use serde_json::{Map, json};
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::sleep;

use super::plan::{CallPlan, Said, ToolPlan};
use super::pod::Gate;
use super::world::{self, Promise, World, marks, print};

pub struct FakeModel {
    world: Arc<World>,
    gate: Arc<Gate>,
}

impl FakeModel {
    pub fn new(world: &Arc<World>, gate: &Arc<Gate>) -> Self {
        Self { world: Arc::clone(world), gate: Arc::clone(gate) }
    }

    /// Writes the question down and answers with its number.
    fn note(&self, call: &CallPlan, messages: &[Arc<Message>], prints: Vec<u64>) -> usize {
        let world = &self.world;
        world.verdict(Promise::I7, check_pairing(messages.iter().map(AsRef::as_ref)).is_ok(), || {
            format!("{} was asked with a transcript that does not pair", call.key)
        });
        let home = world.plan.home_of(call.slot);
        let stranger = messages.iter().flat_map(|message| stranger(world, message, call.slot)).next();
        world.verdict(Promise::I8, stranger.is_none(), || {
            format!("{home} was shown {}", stranger.clone().unwrap_or_default())
        });
        let mut ledger = world.ledger();
        ledger.asks.push(world::Ask { call: call.key.clone(), transcript: prints });
        let n = ledger.asks.len() - 1;
        drop(ledger);
        world.trace(|| {
            format!("{} asks a{n} for {} with {} messages", self.gate.name, call.key, messages.len())
        });
        n
    }

    async fn stream(
        &self,
        pieces: Option<&UnboundedSender<Piece>>,
        text: &str,
        ms: u64,
        n: usize,
        reset: bool,
    ) {
        let Some(pieces) = pieces.filter(|_| n > 0) else {
            return sleep(Duration::from_millis(ms)).await;
        };
        let say = |text: &str| drop(pieces.send(Piece::Text(text.to_owned())));
        let pause = Duration::from_millis(ms / (n as u64 + u64::from(reset)));
        if reset {
            say("never mind ");
            sleep(pause).await;
            let _ = pieces.send(Piece::Reset);
        }
        let size = text.len().div_ceil(n);
        for piece in text.as_bytes().chunks(size) {
            sleep(pause).await;
            say(&String::from_utf8_lossy(piece));
        }
    }
}

/// A mark in `message` that has no business in this slot.
pub fn stranger(world: &World, message: &Message, slot: usize) -> Option<String> {
    let text = message.text();
    marks(&text).find(|mark| !world.plan.belongs(mark, slot)).map(str::to_owned)
}

#[async_trait]
impl Model for FakeModel {
    async fn reply(&self, ask: Ask<'_>) -> Result<ModelReply, ModelError> {
        self.gate.pass().await;
        let messages: Vec<Arc<Message>> =
            ask.transcript().map(|entry| entry.message().expect("readable")).collect();
        let prints = ask.transcript().map(|entry| print(entry.raw())).collect();
        let Some((at, call)) = self.world.plan.running_call(&messages) else {
            self.world.broken(Promise::I1, "a model was asked without any call's message".into());
            return pending().await;
        };
        let n = self.note(call, &messages, prints);
        if let Some(ms) = call.poison {
            if let Some(pieces) = &ask.pieces {
                let _ = pieces.send(Piece::Text("ouch".into()));
            }
            sleep(Duration::from_millis(ms)).await;
            self.gate.pass().await;
            self.world.count("kills by a poisonous message");
            self.world.trace(|| format!("{} dies of {}", self.gate.name, call.key));
            *self.world.ledger().killed_by.entry(call.key.clone()).or_default() += 1;
            self.gate.kill();
            return pending().await;
        }
        let replies = messages[at..].iter().filter(|message| message.role == Role::Assistant).count();
        let text = format!("a{n} to #{}#", call.key);
        let answer = Said::Answer { ms: 5, pieces: 1, reset: false };
        let content = match call.script.get(replies).unwrap_or_else(|| match call.script.last() {
            Some(endless @ Said::Endless { .. }) => endless,
            _ => &answer,
        }) {
            Said::Fails { ms, times } => {
                sleep(Duration::from_millis(*ms)).await;
                self.gate.pass().await;
                let mut ledger = self.world.ledger();
                let failed = ledger.failures.entry(call.key.clone()).or_default();
                *failed += 1;
                if *failed <= *times {
                    return Err(ModelError::Unavailable { detail: "simulated".into(), retry_after: None });
                }
                vec![Block::text(text)]
            }
            Said::Answer { ms, pieces, reset } => {
                self.stream(ask.pieces.as_ref(), &text, *ms, *pieces, *reset).await;
                vec![Block::text(text)]
            }
            Said::Tools { ms, tools, same_ids } => {
                self.stream(ask.pieces.as_ref(), &text, *ms, 1, false).await;
                wants(text, n, tools, *same_ids, &call.key)
            }
            Said::Endless { ms } => {
                sleep(Duration::from_millis(*ms)).await;
                let look = ToolPlan { safety: Safety::ReadOnly, ms: 10, fails: false };
                wants(text, n, &[look], true, &call.key)
            }
        };
        self.gate.pass().await;
        self.world.trace(|| format!("{} has a{n}", self.gate.name));
        Ok(ModelReply::new(content, Usage { input_tokens: 1, output_tokens: 1, cached_tokens: 0 }))
    }
}

fn wants(text: String, n: usize, tools: &[ToolPlan], same_ids: bool, key: &str) -> Vec<Block> {
    let mut content = vec![Block::text(text)];
    for (i, tool) in tools.iter().enumerate() {
        let name = match tool.safety {
            Safety::ReadOnly => "look",
            Safety::Idempotent => "set",
            Safety::Unsafe => "pay",
        };
        content.push(Block::ToolUse(ToolUse {
            id: if same_ids { format!("call_{i}") } else { format!("t{n}_{i}") },
            name: name.into(),
            input: json!({"wanted": format!("a{n}.{i}"), "ms": tool.ms, "fails": tool.fails, "call": key}),
            extra: Map::new(),
        }));
    }
    content
}
