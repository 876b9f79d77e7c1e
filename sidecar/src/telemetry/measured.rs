//! A store, a model and tools that are timed and traced. Thin: what goes in and comes out is theirs.

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use tokio::sync::broadcast;
use tracing::Instrument;

use super::metrics::Metrics;
use super::traces::Traces;
use crate::model::{Ask, Model, ModelError, ModelReply};
use crate::state::{CallId, Id, Slot};
use crate::store::{
    Announcement, Append, Begin, Begun, Blob, CallStatus, Claim, Claimed, Commit, Committed, EventId,
    EventPage, Grant, Interrupted, LiveCall, Loaded, Pulse, Renew, Retried, Retry, Rewrite, Rewritten,
    SessionPage, Store, StoreError, Suspend,
};
use crate::tools::{ToolCall, ToolOutput, ToolSpec, Tools};

pub struct Measured<T: ?Sized> {
    metrics: Arc<Metrics>,
    traces: Traces,
    inner: Arc<T>,
}

impl<T: ?Sized> Measured<T> {
    pub fn new(metrics: &Arc<Metrics>, traces: &Traces, inner: Arc<T>) -> Self {
        Self { metrics: Arc::clone(metrics), traces: traces.clone(), inner }
    }
}

impl Measured<dyn Store> {
    async fn timed<T>(
        &self,
        operation: &'static str,
        answer: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let started = Instant::now();
        let answer = answer.await;
        self.metrics.store_answered(operation, started.elapsed(), answer.as_ref().err());
        answer
    }

    fn count_resume(&self, grant: &Grant) {
        if grant.call.resumes > 0 {
            self.metrics.resumed();
        }
    }
}

#[async_trait]
impl Store for Measured<dyn Store> {
    async fn begin(&self, slot: &Slot, begin: &Begin) -> Result<Begun, StoreError> {
        let begun = self.timed("begin", self.inner.begin(slot, begin)).await?;
        if let Begun::Granted(grant) = &begun {
            self.count_resume(grant);
        }
        Ok(begun)
    }

    async fn claim(&self, slot: &Slot, claim: &Claim) -> Result<Claimed, StoreError> {
        let claimed = self.timed("claim", self.inner.claim(slot, claim)).await?;
        if let Claimed::Granted(grant) = &claimed {
            self.count_resume(grant);
        }
        Ok(claimed)
    }

    async fn append(&self, slot: &Slot, append: &Append) -> Result<Pulse, StoreError> {
        self.timed("append", self.inner.append(slot, append)).await
    }

    async fn renew(&self, slot: &Slot, renew: &Renew) -> Result<Pulse, StoreError> {
        self.timed("renew", self.inner.renew(slot, renew)).await
    }

    async fn commit(&self, slot: &Slot, commit: &Commit) -> Result<Committed, StoreError> {
        let committed = self.timed("commit", self.inner.commit(slot, commit)).await?;
        self.metrics.call_ended(commit.ended);
        Ok(committed)
    }

    async fn suspend(&self, slot: &Slot, suspend: &Suspend) -> Result<(), StoreError> {
        self.timed("suspend", self.inner.suspend(slot, suspend)).await
    }

    async fn interrupt(&self, slot: &Slot, call: &CallId, mark: &Blob) -> Result<Interrupted, StoreError> {
        self.timed("interrupt", self.inner.interrupt(slot, call, mark)).await
    }

    async fn retry(&self, slot: &Slot, retry: &Retry) -> Result<Retried, StoreError> {
        self.timed("retry", self.inner.retry(slot, retry)).await
    }

    async fn rewrite(&self, slot: &Slot, rewrite: &Rewrite) -> Result<Rewritten, StoreError> {
        self.timed("rewrite", self.inner.rewrite(slot, rewrite)).await
    }

    async fn delete(&self, slot: &Slot) -> Result<bool, StoreError> {
        self.timed("delete", self.inner.delete(slot)).await
    }

    async fn load(&self, slot: &Slot, last: Option<usize>) -> Result<Option<Loaded>, StoreError> {
        self.timed("load", self.inner.load(slot, last)).await
    }

    async fn status(&self, slot: &Slot, call: &CallId) -> Result<CallStatus, StoreError> {
        self.timed("status", self.inner.status(slot, call)).await
    }

    async fn live(&self, slot: &Slot) -> Result<Vec<LiveCall>, StoreError> {
        self.timed("live", self.inner.live(slot)).await
    }

    async fn events(
        &self,
        slot: &Slot,
        call: &CallId,
        after: Option<EventId>,
    ) -> Result<EventPage, StoreError> {
        self.timed("events", self.inner.events(slot, call, after)).await
    }

    async fn list(&self, user: &Id, limit: usize, cursor: Option<&str>) -> Result<SessionPage, StoreError> {
        self.timed("list", self.inner.list(user, limit, cursor)).await
    }

    async fn overdue(&self, bucket: u8, limit: usize) -> Result<Vec<Slot>, StoreError> {
        self.timed("overdue", self.inner.overdue(bucket, limit)).await
    }

    fn buckets(&self) -> u8 {
        self.inner.buckets()
    }

    fn announcements(&self) -> broadcast::Receiver<Announcement> {
        self.inner.announcements()
    }

    async fn ping(&self) -> Result<(), StoreError> {
        self.timed("ping", self.inner.ping()).await
    }

    fn is_local(&self) -> bool {
        self.inner.is_local()
    }
}

#[async_trait]
impl Model for Measured<dyn Model> {
    async fn reply(&self, ask: Ask<'_>) -> Result<ModelReply, ModelError> {
        let started = Instant::now();
        let mut span = self.traces.chat(ask.context);
        span.content("gen_ai.input.messages", || {
            let said: Vec<_> = ask.turn.iter().map(|entry| String::from_utf8_lossy(entry.raw())).collect();
            format!("[{}]", said.join(","))
        });
        let context = span.within(ask.context);
        let ask = Ask { context: &context, ..ask };
        let reply = self.inner.reply(ask).instrument(tracing::info_span!("chat")).await;
        match &reply {
            Ok(reply) => span.replied(reply),
            Err(error) => span.fail(error.kind()),
        }
        self.metrics.model_replied(started.elapsed(), reply.as_ref());
        reply
    }
}

#[async_trait]
impl Tools for Measured<dyn Tools> {
    fn specs(&self) -> Arc<Vec<ToolSpec>> {
        self.inner.specs()
    }

    async fn settle(&self) {
        self.inner.settle().await;
    }

    async fn run(&self, call: ToolCall<'_>) -> ToolOutput {
        let (tool, started) = (call.name.to_owned(), Instant::now());
        let mut span = self.traces.execute_tool(call.name, call.id, call.context);
        span.content("gen_ai.tool.call.arguments", || call.input.to_string());
        let context = span.within(call.context);
        let call = ToolCall { context: &context, ..call };
        let output = self.inner.run(call).instrument(tracing::info_span!("execute_tool", tool)).await;
        let outcome = if output.is_error { "error" } else { "ok" };
        if output.is_error {
            span.fail("tool_error");
        }
        span.content("gen_ai.tool.call.result", || serde_json::json!(output.content).to_string());
        self.metrics.tool_answered(&tool, outcome, started.elapsed());
        output
    }
}
