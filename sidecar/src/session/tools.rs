//! Running the tools a model asked for: intent first, in parallel, each result journalled as it comes.

use std::panic::AssertUnwindSafe;

use futures::FutureExt;
use futures::stream::{FuturesUnordered, StreamExt};
use sha2::{Digest, Sha256};
use tokio::time::{sleep_until, timeout};

use super::call::Run;
use super::events;
use super::lease::Lost;
use super::settings::Durability;
use crate::engine::{Pending, Turn};
use crate::mutants::{self, Mutant};
use crate::state::{Block, Entry, Message, Meta, ToolResult};
use crate::store::{EventName, Step, StepKind};
use crate::tools::{Caller, Safety, ToolCall, ToolOutput};

/// What the model is told about an unsafe tool that was running when its replica stopped.
pub const OUTCOME_UNKNOWN: &str = "outcome unknown: the agent was interrupted while this tool ran; it may or may not have \
                                   taken effect, and it was not run again";

/// Bytes of what is not text in one result: pictures, sound.
pub const MAX_BESIDE_TEXT: usize = 4 << 20;
/// What a text costs beside its bytes: a thousand empty ones are not nothing.
const FRAME: usize = 32;

impl Run<'_> {
    pub async fn run_tools(&mut self, open: Vec<Pending>) -> Result<(), Lost> {
        let mut runnable = Vec::new();
        for pending in open {
            match self.safety(&pending) {
                // It may have run where it was known; nobody here can say how it may be repeated.
                None if pending.started => self.answer(&pending, ToolOutput::error(OUTCOME_UNKNOWN)),
                None => {
                    let text = format!("there is no tool named {:?} any more", pending.tool_use.name);
                    self.answer(&pending, ToolOutput::error(text));
                }
                Some(safety) if pending.started && !may_repeat(safety) => {
                    self.answer(&pending, ToolOutput::error(OUTCOME_UNKNOWN));
                }
                Some(safety) => {
                    if !pending.started {
                        self.note_intent(&pending, safety);
                    }
                    let data = events::tool_started(&self.call.id, &pending.tool_use);
                    self.lease.event(EventName::ToolStarted, data);
                    runnable.push((pending, safety));
                }
            }
        }
        let any_unsafe = runnable.iter().any(|(_, safety)| *safety == Safety::Unsafe);
        let saved = self.lease.journal(any_unsafe || runnable.is_empty(), Some(self.deadline)).await?;
        if runnable.is_empty() || !saved {
            return Ok(());
        }
        for (pending, _) in &runnable {
            self.turn.intend(&pending.tool_use.id);
        }
        self.lease.make_sure().await?;
        self.watch(runnable).await
    }

    /// Waits for the tools, and meanwhile keeps the lease. A drain does not end it: what has begun is awaited.
    async fn watch(&mut self, runnable: Vec<(Pending, Safety)>) -> Result<(), Lost> {
        let shared = std::sync::Arc::clone(self.shared);
        let context = std::sync::Arc::clone(&self.context);
        let limit = shared.settings.tool_timeout;
        let (slot, call, fence) = (self.lease.slot.clone(), self.call.id.clone(), self.lease.token.fence);
        let caller = Caller { slot: &slot, call: &call, fence };
        let mut running: FuturesUnordered<_> = runnable
            .into_iter()
            .map(|(pending, safety)| {
                let key = self.idempotency_key(&pending);
                let (tools, context) = (&shared.tools, &context);
                async move {
                    let call = ToolCall {
                        id: &pending.tool_use.id,
                        name: &pending.tool_use.name,
                        input: &pending.tool_use.input,
                        idempotency_key: &key,
                        caller,
                        context,
                    };
                    let run = AssertUnwindSafe(tools.run(call)).catch_unwind();
                    let output = match timeout(limit, run).await {
                        Ok(Ok(output)) => output,
                        Ok(Err(_)) => ToolOutput::error("the tool crashed; its outcome is unknown"),
                        Err(_) => ToolOutput::error(format!(
                            "the tool did not answer within {} s; its outcome is unknown",
                            limit.as_secs_f32()
                        )),
                    };
                    (pending, safety, output)
                }
            })
            .collect();
        let mut announced = self.lease.desk.announcements();
        loop {
            let beat = self.lease.next_beat();
            tokio::select! {
                biased;
                finished = running.next() => match finished {
                    None => return Ok(()),
                    Some((pending, safety, output)) => {
                        self.answer(&pending, output);
                        self.lease.journal(safety == Safety::Unsafe, Some(self.deadline)).await?;
                    }
                },
                () = sleep_until(self.deadline) => return Ok(()),
                () = sleep_until(beat) => self.lease.beat().await?,
                () = announced.ticked() => self.lease.beat().await?,
            }
            if self.lease.pulse.mark.is_some() {
                return Ok(());
            }
        }
    }

    /// A result into the turn and towards the journal, and its effect on the state.
    fn answer(&mut self, pending: &Pending, mut output: ToolOutput) {
        cut(&mut output, self.shared.settings.max_tool_result);
        let mut result = ToolResult::new(&pending.tool_use, output.is_error, "");
        result.content = output.content;
        let data = events::tool_finished(&self.call.id, &result);
        let mut message = Message::tool(result);
        message.timestamp = Some(events::timestamp());
        let entry = Entry::new(message);
        let Ok(message) = entry.message() else { return };
        self.meta_changed |= apply_effects(&self.turn, &message, &mut self.history.meta);
        self.turn.result(entry.clone(), &message);
        self.lease.event(EventName::ToolFinished, data);
        self.note_completed(&message, &entry);
        self.lease.keep(Step { kind: StepKind::Result, bytes: entry.raw().clone().into() });
    }

    fn note_intent(&mut self, pending: &Pending, safety: Safety) {
        // Without step-by-step durability only what must not happen twice is worth a write.
        let worth_it = self.shared.settings.durability == Durability::Step || safety == Safety::Unsafe;
        if worth_it && !mutants::is(Mutant::IntentNotJournalled) {
            self.lease.keep(Step { kind: StepKind::Intent, bytes: events::intent(&pending.tool_use.id) });
        }
    }

    fn safety(&self, pending: &Pending) -> Option<Safety> {
        self.tools.iter().find(|spec| spec.name == pending.tool_use.name).map(|spec| spec.safety)
    }

    /// The same for every run of this tool call, on any replica, after any takeover; of no other in the world.
    fn idempotency_key(&self, pending: &Pending) -> String {
        let mut hash = Sha256::new();
        let user = self.lease.slot.user.as_ref();
        // Without step-by-step durability a reply can be lost after its tools have begun; the model is asked again and may
        // want something else at the same place. That is another tool call.
        let input = pending.tool_use.input.to_string();
        let parts: [&[u8]; 11] = [
            self.shared.settings.prefix.as_bytes(),
            &[u8::from(user.is_some())],
            user.map_or("", |user| user.as_str()).as_bytes(),
            self.lease.slot.session.as_str().as_bytes(),
            &self.history.head.created.to_be_bytes(),
            self.call.id.as_str().as_bytes(),
            &self.call.retry.to_be_bytes(),
            &(pending.step as u64).to_be_bytes(),
            &(pending.index as u64).to_be_bytes(),
            pending.tool_use.name.as_bytes(),
            input.as_bytes(),
        ];
        for part in parts {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        hash.finalize().iter().fold(String::with_capacity(64), |mut hex, byte| {
            use std::fmt::Write;
            // Writing to a string cannot fail.
            let _ = write!(hex, "{byte:02x}");
            hex
        })
    }
}

fn may_repeat(safety: Safety) -> bool {
    safety.may_repeat() || mutants::is(Mutant::UnsafeToolRerun)
}

/// What built-in tools do to the state, told from the journalled call alone: a takeover arrives at the same state.
/// `true` where something changed.
pub fn apply_effects(turn: &Turn, result: &Message, meta: &mut Meta) -> bool {
    let mut changed = false;
    for result in result.tool_results().filter(|result| !result.is_error) {
        if let Some(pending) = turn.open().iter().find(|open| open.tool_use.id == result.tool_use_id) {
            changed |= crate::tools::builtin_effect(meta, &pending.tool_use);
        }
    }
    changed
}

/// Cuts a result to its bound, at a character, and says so. What is not text has a bound of its own: half a picture is none.
fn cut(output: &mut ToolOutput, limit: usize) {
    let (mut left, mut left_beside, mut dropped) = (limit, MAX_BESIDE_TEXT, 0);
    output.content.retain_mut(|block| {
        let fits = match block {
            Block::Text { text, .. } if left > 0 && text.len() > left => {
                let total = text.len();
                let end = text.floor_char_boundary(left);
                text.truncate(end);
                text.push_str(&format!("\n[cut: {end} of {total} bytes]"));
                left = 0;
                true
            }
            Block::Text { text, .. } => {
                let fits = left > 0;
                left = left.saturating_sub(text.len() + FRAME);
                fits
            }
            other => {
                let size = serde_json::to_vec(other).map_or(usize::MAX, |bytes| bytes.len());
                let fits = size <= left_beside;
                left_beside -= if fits { size } else { 0 };
                fits
            }
        };
        dropped += usize::from(!fits);
        fits
    });
    if dropped > 0 {
        output
            .content
            .push(Block::text(format!("[{dropped} parts of the result were too large and are left out]")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut_to(limit: usize, content: Vec<Block>) -> Vec<Block> {
        let mut output = ToolOutput { content, is_error: false };
        cut(&mut output, limit);
        output.content
    }

    fn picture(bytes: usize) -> Block {
        let source =
            serde_json::json!({"type": "base64", "mediaType": "image/png", "data": "A".repeat(bytes)});
        Block::Image { source, extra: serde_json::Map::new() }
    }

    #[test]
    fn a_text_is_cut_at_a_character_and_says_so() {
        assert_eq!(cut_to(4, vec![Block::text("äöü")]), [Block::text("äö\n[cut: 4 of 6 bytes]")]);
        assert_eq!(cut_to(3, vec![Block::text("äöü")]), [Block::text("ä\n[cut: 2 of 6 bytes]")]);
        assert_eq!(cut_to(6, vec![Block::text("äöü")]), [Block::text("äöü")]);
        let left = [
            Block::text("ab\n[cut: 2 of 3 bytes]"),
            Block::text("[2 parts of the result were too large and are left out]"),
        ];
        assert_eq!(cut_to(2, vec![Block::text("abc"), Block::text("d"), Block::text("")]), left);
    }

    #[test]
    fn many_small_texts_are_bounded_too() {
        let cut = cut_to(1000, vec![Block::text(""); 100_000]);
        assert_eq!(cut.len(), 1000usize.div_ceil(FRAME) + 1);
    }

    #[test]
    fn a_picture_is_there_whole_or_not_at_all() {
        let (small, large) = (picture(1 << 20), picture(MAX_BESIDE_TEXT));
        let cut = cut_to(10, vec![small.clone(), large, Block::text("a cat"), small.clone()]);
        let said = Block::text("[1 parts of the result were too large and are left out]");
        assert_eq!(cut, [small.clone(), Block::text("a cat"), small, said]);
    }
}
