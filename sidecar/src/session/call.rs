//! One call, run: from the grant to its end, its suspension, or the loss of its lease.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::Shared;
use super::end::End;
use super::events;
use super::history::History;
use super::lease::{Lease, Lost};
use super::settings::{Durability, MAX_TAKEOVERS, waits};
use crate::engine::{self, Next, Turn};
use crate::model::{Ask, CallContext, ModelError, ModelReply, Piece};
use crate::state::{Block, Entry, Message, Role};
use crate::store::{EventName, HeadCall, Step, StepKind, StoreError};
use crate::telemetry::traces::Span;
use crate::tools::ToolSpec;

/// A running call and everything it needs.
pub struct Run<'a> {
    pub shared: &'a Arc<Shared>,
    pub lease: &'a mut Lease,
    pub history: &'a mut History,
    pub call: HeadCall,
    pub turn: Turn,
    /// As models and tools are shown it: inside this run's span.
    pub context: Arc<CallContext>,
    pub span: Span,
    pub tools: Arc<Vec<ToolSpec>>,
    /// The manifest's time for a call, less what it has run elsewhere.
    pub deadline: Instant,
    /// Something of the state beside the history has changed.
    pub meta_changed: bool,
    /// Messages of the history that were not sent, for want of room.
    pub not_sent: usize,
}

/// How a run of a call came out.
pub enum Ran {
    /// Ended and committed; the next call, under the same lease.
    Ended(Option<Box<HeadCall>>),
    Suspended,
}

enum Asked {
    Replied(Result<ModelReply, ModelError>),
    Interrupted { partial: String },
    Draining { said: bool },
    TimedOut,
}

impl<'a> Run<'a> {
    /// Rebuilds the call from its journal.
    pub fn new(
        shared: &'a Arc<Shared>,
        lease: &'a mut Lease,
        history: &'a mut History,
        call: HeadCall,
        said: &[Entry],
    ) -> Result<Self, Lost> {
        let corrupt =
            |what: &str, error: serde_json::Error| Lost(StoreError::Corrupt(format!("{what}: {error}")));
        let context = if call.context.is_empty() {
            CallContext::default()
        } else {
            serde_json::from_slice(&call.context)
                .map_err(|error| corrupt("a call's context is not readable", error))?
        };
        let entry = |bytes: &crate::store::Blob| Entry::from_bytes(bytes.bytes().clone());
        let known =
            |bytes: &crate::store::Blob| said.iter().find(|entry| entry.raw() == bytes.bytes()).cloned();
        let input = call.input.iter().map(|bytes| known(bytes).unwrap_or_else(|| entry(bytes)));
        let mut turn = Turn::new(input.collect());
        let mut meta_changed = false;
        for step in &call.steps {
            let unreadable = |error| corrupt("a step in a call's journal is not readable", error);
            match step.kind {
                StepKind::Message => {
                    let entry = entry(&step.bytes);
                    let message = entry.message().map_err(unreadable)?;
                    history.know_tool_ids(&message);
                    turn.reply(entry, &message);
                }
                StepKind::Intent => {
                    let intent: events::Intent = serde_json::from_slice(&step.bytes).map_err(unreadable)?;
                    turn.intend(&intent.tool_use_id);
                }
                StepKind::Result => {
                    let entry = entry(&step.bytes);
                    let message = entry.message().map_err(unreadable)?;
                    meta_changed |= super::tools::apply_effects(&turn, &message, &mut history.meta);
                    turn.result(entry, &message);
                }
            }
        }
        let span = shared.settings.traces.invoke_agent(&lease.slot, &call.id, call.resumes, &context);
        let left = shared.settings.call_timeout.saturating_sub(Duration::from_millis(call.ran));
        Ok(Self {
            shared,
            lease,
            history,
            turn,
            context: span.within(&Arc::new(context)),
            span,
            tools: shared.tools.specs(),
            deadline: Instant::now() + left,
            meta_changed,
            not_sent: 0,
            call,
        })
    }

    /// What every line that is logged on the way says.
    pub fn log_span(&self) -> tracing::Span {
        let (request, replica) = (self.context.request_id.as_deref(), &self.shared.settings.replica);
        let trace = self.span.traceparent();
        tracing::info_span!("invoke_agent", call = %self.call.id.shown(), session = %self.lease.slot, replica, request, trace)
    }

    pub async fn run(mut self) -> Result<Ran, Lost> {
        let shared = Arc::clone(self.shared);
        if self.call.resumes > 0 {
            tracing::info!(resumes = self.call.resumes, "goes on with a call of another run");
        }
        shared.keep_files(&self.lease.slot);
        let (settings, attempts) = (&shared.settings, self.call.attempts_total);
        if self.call.attempts >= settings.recovery_attempts.max(1) || attempts >= MAX_TAKEOVERS {
            return self.end(End::recovery_exhausted(attempts)).await;
        }
        if self.call.resumes == 0 {
            self.lease.event(EventName::Started, events::about(&self.call.id));
        } else {
            self.lease.event(EventName::Resumed, events::resumed(&self.call.id, &settings.replica));
            // Takers of a call say so at once: a relay waits for it.
            self.lease.beat().await?;
        }
        loop {
            match self.turn.next(settings.max_iterations) {
                // The answer is there: whoever wants it stopped, or handed over, comes too late.
                Next::Finish => return self.end(End::completed()).await,
                _ if self.lease.pulse.mark.is_some() => {
                    return self.end(End::interrupted(String::new(), String::new())).await;
                }
                _ if self.shared.phase.stopping() => return self.suspend(None).await,
                _ if Instant::now() >= self.deadline => {
                    return self.end(End::call_timeout(settings.call_timeout)).await;
                }
                Next::RunTools(open) => self.run_tools(open).await?,
                Next::TooManyIterations => {
                    return self.end(End::too_many_iterations(settings.max_iterations)).await;
                }
                Next::AskModel => {
                    let message_id = crate::state::fresh_message_id();
                    match self.ask(&message_id).await? {
                        Asked::Replied(Ok(reply)) => {
                            if let Err(error) = self.take(reply, message_id) {
                                return self.end(End::model_failed(&error)).await;
                            }
                        }
                        Asked::Replied(Err(error)) => return self.end(End::model_failed(&error)).await,
                        Asked::Interrupted { partial } => {
                            return self.end(End::interrupted(partial, message_id)).await;
                        }
                        Asked::Draining { said } => return self.suspend(said.then_some(message_id)).await,
                        Asked::TimedOut => {
                            return self.end(End::call_timeout(settings.call_timeout)).await;
                        }
                    }
                }
            }
        }
    }

    /// Asks the model, and meanwhile keeps the lease, passes the text on, and listens for whoever wants it to stop.
    async fn ask(&mut self, message_id: &str) -> Result<Asked, Lost> {
        self.lease.make_sure().await?;
        let settings = &self.shared.settings;
        let bytes = |entries: &[Entry]| entries.iter().map(|entry| entry.raw().len()).sum::<usize>();
        let (before, own) = self.history.entries().split_at(self.own_part());
        let own = bytes(own);
        let prompt = settings.system_prompt.as_ref().map_or(0, |prompt| prompt.len());
        let rest = prompt + bytes(self.turn.entries()) + own;
        let from = engine::window(before, self.history.bytes() - own, rest, settings.context_window);
        // What is not sent is not looked at again.
        before[..from].iter().for_each(Entry::forget);
        self.not_sent = from;

        let (sender, mut pieces) = mpsc::unbounded_channel();
        let streaming = self.lease.pulse.stream;
        let ask = Ask {
            system: settings.system_prompt.as_deref(),
            history: &self.history.entries()[from..],
            rendering: &self.history.rendering,
            turn: self.turn.entries(),
            tools: &self.tools,
            pieces: streaming.then_some(sender),
            context: &self.context,
        };
        let mut reply = std::pin::pin!(self.shared.model.reply(ask));
        let mut announced = self.lease.desk.announcements();
        let (mut partial, mut unsent) = (String::new(), String::new());
        let mut flush: Option<Instant> = None;
        let mut said = false;
        loop {
            let beat = self.lease.next_beat();
            tokio::select! {
                biased;
                replied = &mut reply => {
                    while let Ok(piece) = pieces.try_recv() {
                        passed_on(self.lease, &self.call, message_id, piece, &mut partial, &mut unsent);
                    }
                    if replied.is_ok() {
                        say(self.lease, &self.call, message_id, &mut unsent);
                    } else {
                        void(self.lease, &self.call, message_id, &partial, &unsent);
                    }
                    return Ok(Asked::Replied(replied));
                }
                () = self.shared.phase.stop() => return Ok(Asked::Draining { said }),
                () = sleep_until(self.deadline) => {
                    void(self.lease, &self.call, message_id, &partial, &unsent);
                    return Ok(Asked::TimedOut);
                }
                Some(piece) = pieces.recv() => {
                    passed_on(self.lease, &self.call, message_id, piece, &mut partial, &mut unsent);
                    // The first word goes out at once; what follows is gathered.
                    let pause = if said { waits::COALESCE } else { Duration::ZERO };
                    flush.get_or_insert_with(|| Instant::now() + pause);
                }
                () = sleep_until(flush.unwrap_or(beat)), if flush.is_some() => {
                    flush = None;
                    said = true;
                    say(self.lease, &self.call, message_id, &mut unsent);
                    self.lease.beat().await?;
                }
                () = sleep_until(beat) => self.lease.beat().await?,
                () = announced.ticked() => self.lease.beat().await?,
            }
            if self.lease.pulse.mark.is_some() {
                say(self.lease, &self.call, message_id, &mut unsent);
                return Ok(Asked::Interrupted { partial });
            }
        }
    }

    /// Where in the history this call begins: on a retry its input stands there already, and must be sent whatever fits.
    fn own_part(&self) -> usize {
        let entries = self.history.entries();
        if self.call.retry == 0 {
            return entries.len();
        }
        let added = entries.len().saturating_sub(self.call.prior);
        let is_input = |entry: &&Entry| entry.glance().is_ok_and(|message| message.role == Role::User);
        added - entries[..added].iter().rev().take_while(is_input).count()
    }

    /// The model has answered: into the turn, and, if it asks for tools, towards the journal.
    fn take(&mut self, reply: ModelReply, id: String) -> Result<(), ModelError> {
        let mut message = Message::assistant(reply.content);
        message.id = id;
        message.timestamp = Some(events::timestamp());
        message.usage = Some(reply.usage);
        message.set_stop_reason(reply.stop.cut());
        message.set_model(reply.model.as_deref().filter(|model| *model != self.shared.settings.model));
        self.history.rename_repeated(&mut message);
        let asks_for_tools = message.tool_uses().next().is_some();
        let mut entry = Entry::new(message);
        if asks_for_tools {
            // Read back from the bytes it is journalled as: a takeover must arrive at the very same tool calls.
            entry = Entry::from_bytes(entry.raw().clone());
        }
        let unreadable =
            |error| ModelError::Malformed { detail: format!("its answer cannot be kept: {error}") };
        let message = entry.message().map_err(unreadable)?;
        self.turn.reply(entry.clone(), &message);
        if asks_for_tools {
            self.note_completed(&message, &entry);
            self.lease.keep(Step { kind: StepKind::Message, bytes: entry.raw().clone().into() });
        }
        Ok(())
    }

    /// `message.completed` for a message that goes to the store with the next unsaved steps.
    pub fn note_completed(&mut self, message: &Message, entry: &Entry) {
        let head = events::message_completed(&self.call.id, &message.id);
        if self.shared.settings.durability == Durability::Step {
            let place = self.lease.next_place();
            self.lease.event_about(place, EventName::MessageCompleted, head);
        } else {
            // The message may wait long for its journal entry; its event must not.
            let whole = events::with_message(&head, entry.raw());
            self.lease.event(EventName::MessageCompleted, whole);
        }
    }

    /// Gives the call back. Text that was already shown is void: the model will be asked again.
    async fn suspend(mut self, said: Option<String>) -> Result<Ran, Lost> {
        if let Some(message_id) = said {
            self.lease.event(EventName::Reset, events::message_reset(&self.call.id, &message_id));
        }
        self.lease.event(EventName::Suspended, events::about(&self.call.id));
        self.lease.suspend().await?;
        self.span.set("holdfast.call.outcome", "suspended");
        Ok(Ran::Suspended)
    }
}

fn passed_on(
    lease: &mut Lease,
    call: &HeadCall,
    message_id: &str,
    piece: Piece,
    partial: &mut String,
    unsent: &mut String,
) {
    match piece {
        Piece::Text(text) => {
            partial.push_str(&text);
            unsent.push_str(&text);
        }
        Piece::Reset => {
            partial.clear();
            unsent.clear();
            lease.event(EventName::Reset, events::message_reset(&call.id, message_id));
        }
    }
}

fn say(lease: &mut Lease, call: &HeadCall, message_id: &str, unsent: &mut String) {
    if !unsent.is_empty() {
        lease.event(EventName::Delta, events::message_delta(&call.id, message_id, unsent));
        unsent.clear();
    }
}

/// No message will come of what was shown: whoever saw it is told.
fn void(lease: &mut Lease, call: &HeadCall, message_id: &str, partial: &str, unsent: &str) {
    if partial.len() > unsent.len() {
        lease.event(EventName::Reset, events::message_reset(&call.id, message_id));
    }
}

/// The text of a model's partial answer, as a block.
pub fn partial_content(text: String) -> Vec<Block> {
    vec![Block::text(text)]
}
