//! How a call ends: the messages that close it, the reply that is kept, the commit.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::board::FeedEnd;
use super::call::{Ran, Run, partial_content};
use super::events;
use super::lease::Lost;
use crate::model::ModelError;
use crate::state::{Entry, Message};
use crate::store::{Blob, Commit, Committed, Ended, EventName, Reply};
use crate::telemetry::traces::count;

pub const RECOVERY_EXHAUSTED: &str = "recovery-exhausted";

/// Why and how a call ends.
pub struct End {
    ended: Ended,
    error: Option<CallFailure>,
    /// What the model had said when it was stopped, and the id it was shown under.
    partial: Option<(String, String)>,
}

/// What a failed call says about itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallFailure {
    pub r#type: String,
    pub detail: String,
    pub retryable: bool,
}

/// The document of a finished call that the store keeps; its messages are kept beside it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Document {
    pub usage: CallUsage,
    pub version: u64,
    pub resumes: u32,
    pub error: Option<CallFailure>,
    /// Messages of the history that did not fit the model's context and were not sent.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub messages_not_sent: usize,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CallUsage {
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub model_calls: u64,
    pub tool_calls: u64,
}

fn is_zero(n: &usize) -> bool {
    *n == 0
}

/// One mark set by an interrupt.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Mark {
    /// Random: the same interrupt sent twice is one.
    #[serde(default)]
    pub id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

impl End {
    pub fn completed() -> Self {
        Self { ended: Ended::Completed, error: None, partial: None }
    }

    pub fn interrupted(partial: String, message_id: String) -> Self {
        let partial = (!partial.is_empty()).then_some((partial, message_id));
        Self { ended: Ended::Interrupted, error: None, partial }
    }

    pub fn model_failed(error: &ModelError) -> Self {
        Self::failed(error.kind(), error.to_string(), error.retryable())
    }

    pub fn too_many_iterations(limit: u32) -> Self {
        let detail =
            format!("the model asked for tools {limit} times without an answer; raise loop.maxIterations");
        Self::failed("iterations-exceeded", detail, true)
    }

    pub fn call_timeout(limit: Duration) -> Self {
        let detail = format!("the call took longer than {} s; raise loop.callTimeout", limit.as_secs());
        Self::failed("call-timeout", detail, true)
    }

    pub fn recovery_exhausted(attempts: u32) -> Self {
        let detail =
            format!("the replica that ran this call died {attempts} times; it is not tried again by itself");
        Self::failed(RECOVERY_EXHAUSTED, detail, true)
    }

    fn failed(kind: &str, detail: String, retryable: bool) -> Self {
        let error = CallFailure { r#type: kind.to_owned(), detail, retryable };
        Self { ended: Ended::Failed, error: Some(error), partial: None }
    }
}

impl Run<'_> {
    /// Closes the transcript, commits, and tells whoever waits here.
    pub async fn end(mut self, end: End) -> Result<Ran, Lost> {
        let mut messages = self.lease.take_unsaved();
        if end.ended == Ended::Completed {
            // The answer itself: journalled by this very commit.
            if let Some(entry) = self.turn.added().last().cloned() {
                self.conclude(&entry, &mut messages);
            }
        }
        for entry in self.closing_entries(&end) {
            self.conclude(&entry, &mut messages);
        }
        let mut injected = HashSet::new();
        self.inject(&mut injected, &mut messages);
        let (name, outcome) = match end.ended {
            Ended::Completed => (EventName::Completed, "completed"),
            Ended::Interrupted => (EventName::Interrupted, "interrupted"),
            Ended::Failed => (EventName::Failed, "failed"),
        };
        self.lease.event(name, Blob::empty());

        let usage = self.turn.usage();
        let document = Document {
            usage: CallUsage {
                input_tokens: usage.input_tokens,
                output_tokens: usage.output_tokens,
                model_calls: self.turn.replies() as u64,
                tool_calls: self.turn.results() as u64,
            },
            version: self.history.head.version + 1,
            resumes: self.call.resumes,
            error: end.error,
            messages_not_sent: self.not_sent,
        };
        let turns = self.history.head.turns.saturating_add(self.turn.replies() as u64);
        let mut commit = Commit {
            token: self.lease.token,
            version: self.history.head.version,
            call: self.call.id.clone(),
            turns,
            meta: self.meta_changed.then(|| Blob::from(self.history.meta.to_bytes())),
            revision: self.shared.settings.revision.clone(),
            messages,
            ended: end.ended,
            reply: Blob::json(&document),
            marks_seen: self.lease.marks_seen(),
            go_on: !self.shared.phase.stopping(),
            events: self.lease.take_events(),
        };
        let reply = commit.reply.clone();
        let next = loop {
            match self.lease.commit(&mut commit).await? {
                Committed::Done { next } => break next,
                Committed::Marked(marks) => {
                    // Somebody was told meanwhile that it would be said. Whether the call is stopped or not, it is.
                    self.lease.pulse.mark = Some(marks);
                    let last = commit.events.pop();
                    self.inject(&mut injected, &mut commit.messages);
                    commit.events.append(&mut self.lease.take_events());
                    commit.events.extend(last.map(|last| self.lease.renumbered(last)));
                    commit.marks_seen = self.lease.marks_seen();
                }
            }
        };
        self.span.set("holdfast.call.outcome", outcome);
        self.span.set("gen_ai.usage.input_tokens", count(usage.input_tokens));
        self.span.set("gen_ai.usage.output_tokens", count(usage.output_tokens));
        if let Some(error) = &document.error {
            self.span.fail(&error.r#type);
        }

        let prior = self.history.entries().len().saturating_sub(self.call.prior);
        let said = self.history.entries()[prior..].iter().chain(self.turn.added());
        let reply = Reply {
            ended: end.ended,
            document: reply,
            messages: said.map(|entry| entry.raw().clone().into()).collect(),
            retry: self.call.retry,
        };
        self.history.head.version += 1;
        self.history.head.turns = turns;
        self.history.head.interrupted = false;
        self.history.head.revision.clone_from(&self.shared.settings.revision);
        self.history.extend(self.turn.entries().iter().cloned());
        self.lease.end_feed(FeedEnd::Done(Arc::new(reply)));
        Ok(Ran::Ended(next))
    }

    /// A message that goes to the store with the commit.
    fn conclude(&mut self, entry: &Entry, messages: &mut Vec<Blob>) {
        let place = messages.len();
        messages.push(entry.raw().clone().into());
        if let Ok(message) = entry.message() {
            let data = events::message_completed(&self.call.id, &message.id);
            self.lease.event_about(place, EventName::MessageCompleted, data);
        }
    }

    /// What makes the transcript valid where the call ends, in order: an answer for every open tool call, what the model
    /// had said.
    fn closing_entries(&mut self, end: &End) -> Vec<Entry> {
        let why = match end.ended {
            Ended::Completed => return Vec::new(),
            Ended::Interrupted => "interrupted by the user",
            Ended::Failed => "the call ended before this tool had answered",
        };
        let mut entries = Vec::new();
        for message in
            self.turn.close(|pending| if pending.started { super::tools::OUTCOME_UNKNOWN } else { why })
        {
            let entry = Entry::new(message);
            if let Ok(message) = entry.message() {
                self.turn.result(entry.clone(), &message);
            }
            entries.push(entry);
        }
        if let Some((text, id)) = &end.partial {
            let mut message = Message::assistant(partial_content(text.clone()));
            message.id.clone_from(id);
            message.interrupted = true;
            message.timestamp = Some(events::timestamp());
            let entry = Entry::new(message);
            if let Ok(message) = entry.message() {
                self.turn.reply(entry.clone(), &message);
            }
            entries.push(entry);
        }
        entries
    }

    /// What interrupters want said, each once, after all else. Also where they came too late to stop anything: they were told
    /// that it is taken.
    fn inject(&mut self, said: &mut HashSet<String>, messages: &mut Vec<Blob>) {
        let marks = self.lease.pulse.mark.as_ref().map(|marks| serde_json::from_slice::<Vec<Mark>>(marks));
        for mark in marks.and_then(Result::ok).unwrap_or_default() {
            let Mark { id, message: Some(text) } = mark else { continue };
            if said.insert(id) {
                let mut message = Message::user(text);
                message.timestamp = Some(events::timestamp());
                let entry = Entry::new(message);
                self.turn.say(entry.clone());
                self.conclude(&entry, messages);
            }
        }
    }
}
