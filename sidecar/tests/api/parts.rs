//! Parts that a test leads by the hand: a model that does what it is told, a tool that waits, a store that can be out of
//! reach, full or silent.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use async_trait::async_trait;
use holdfast_sidecar::model::{Ask, CallContext, Model, ModelError, ModelReply, Piece, Stop as ModelStop};
use holdfast_sidecar::state::{Block, CallId, Id, Slot, ToolUse, Usage};
use holdfast_sidecar::store::*;
use holdfast_sidecar::tools::{Safety, ToolCall, ToolOutput, ToolSpec, Tools};
use serde_json::{Map, Value};
use tokio::sync::{Semaphore, broadcast, mpsc};

use crate::kit::soon;

/// A call of [`Slow`].
pub fn slow_call() -> Block {
    let input = Value::Object(Map::new());
    Block::ToolUse(ToolUse { id: "t1".into(), name: "slow".into(), input, extra: Map::new() })
}

/// A tool that waits for the test.
pub struct Slow(Arc<Semaphore>);

impl Slow {
    pub fn new() -> (Self, Arc<Semaphore>) {
        let gate = Arc::new(Semaphore::new(0));
        (Self(Arc::clone(&gate)), gate)
    }
}

#[async_trait]
impl Tools for Slow {
    fn specs(&self) -> Arc<Vec<ToolSpec>> {
        let schema = serde_json::value::RawValue::from_string(r#"{"type":"object"}"#.into()).expect("JSON");
        let description = "Takes its time".into();
        Arc::new(vec![ToolSpec {
            name: "slow".into(),
            description,
            schema: schema.into(),
            safety: Safety::Unsafe,
        }])
    }

    async fn run(&self, _: ToolCall<'_>) -> ToolOutput {
        self.0.acquire().await.expect("open").forget();
        ToolOutput::text("done")
    }
}

/// A store in memory that can be out of reach, or announce nothing.
pub struct Sleepy {
    awake: AtomicBool,
    /// As a Redis without memory: what would grow it is refused, what ends work is not.
    full: AtomicBool,
    refused: AtomicUsize,
    /// Where announcements come from that nobody makes.
    silence: broadcast::Sender<Announcement>,
    silent: AtomicBool,
    /// What `begin` waits for, once it has done its work.
    replies: Semaphore,
    inner: MemoryStore,
}

impl Sleepy {
    pub fn new() -> Self {
        Self::with(Limits::default())
    }

    pub fn with(limits: Limits) -> Self {
        Self {
            awake: AtomicBool::new(false),
            full: AtomicBool::new(false),
            refused: AtomicUsize::new(0),
            silence: broadcast::channel(1).0,
            silent: AtomicBool::new(false),
            replies: Semaphore::new(Semaphore::MAX_PERMITS),
            inner: MemoryStore::new(limits),
        }
    }

    /// From now on whoever begins to listen hears nothing.
    pub fn fall_silent(&self) {
        self.silent.store(true, Ordering::SeqCst);
    }

    pub fn hold_replies(&self) {
        self.replies.forget_permits(Semaphore::MAX_PERMITS);
    }

    pub fn let_replies_go(&self) {
        self.replies.add_permits(1000);
    }

    pub fn wake(&self) {
        self.awake.store(true, Ordering::SeqCst);
    }

    pub fn sleep(&self) {
        self.awake.store(false, Ordering::SeqCst);
    }

    pub fn fill(&self) {
        self.full.store(true, Ordering::SeqCst);
    }

    pub fn make_room(&self) {
        self.full.store(false, Ordering::SeqCst);
    }

    /// How often something was refused for want of room.
    pub fn refused(&self) -> usize {
        self.refused.load(Ordering::SeqCst)
    }

    fn find_room(&self) -> Result<&MemoryStore, StoreError> {
        if self.full.load(Ordering::SeqCst) {
            self.refused.fetch_add(1, Ordering::SeqCst);
            return Err(StoreError::OutOfMemory);
        }
        self.reach()
    }

    fn reach(&self) -> Result<&MemoryStore, StoreError> {
        if self.awake.load(Ordering::SeqCst) {
            Ok(&self.inner)
        } else {
            Err(StoreError::Unavailable("asleep".into()))
        }
    }
}

#[async_trait]
impl Store for Sleepy {
    async fn begin(&self, slot: &Slot, begin: &Begin) -> Result<Begun, StoreError> {
        let begun = self.find_room()?.begin(slot, begin).await;
        self.replies.acquire().await.expect("open").forget();
        begun
    }
    async fn claim(&self, slot: &Slot, claim: &Claim) -> Result<Claimed, StoreError> {
        self.reach()?.claim(slot, claim).await
    }
    async fn append(&self, slot: &Slot, append: &Append) -> Result<Pulse, StoreError> {
        self.find_room()?.append(slot, append).await
    }
    async fn renew(&self, slot: &Slot, renew: &Renew) -> Result<Pulse, StoreError> {
        self.reach()?.renew(slot, renew).await
    }
    async fn commit(&self, slot: &Slot, commit: &Commit) -> Result<Committed, StoreError> {
        self.reach()?.commit(slot, commit).await
    }
    async fn suspend(&self, slot: &Slot, suspend: &Suspend) -> Result<(), StoreError> {
        self.reach()?.suspend(slot, suspend).await
    }
    async fn interrupt(&self, slot: &Slot, call: &CallId, mark: &Blob) -> Result<Interrupted, StoreError> {
        self.reach()?.interrupt(slot, call, mark).await
    }
    async fn retry(&self, slot: &Slot, retry: &Retry) -> Result<Retried, StoreError> {
        self.find_room()?.retry(slot, retry).await
    }
    async fn rewrite(&self, slot: &Slot, rewrite: &Rewrite) -> Result<Rewritten, StoreError> {
        self.find_room()?.rewrite(slot, rewrite).await
    }
    async fn delete(&self, slot: &Slot) -> Result<bool, StoreError> {
        self.reach()?.delete(slot).await
    }
    async fn load(&self, slot: &Slot, last: Option<usize>) -> Result<Option<Loaded>, StoreError> {
        self.reach()?.load(slot, last).await
    }
    async fn status(&self, slot: &Slot, call: &CallId) -> Result<CallStatus, StoreError> {
        self.reach()?.status(slot, call).await
    }
    async fn live(&self, slot: &Slot) -> Result<Vec<LiveCall>, StoreError> {
        self.reach()?.live(slot).await
    }
    async fn events(
        &self,
        slot: &Slot,
        call: &CallId,
        after: Option<EventId>,
    ) -> Result<EventPage, StoreError> {
        self.reach()?.events(slot, call, after).await
    }
    async fn list(&self, user: &Id, limit: usize, cursor: Option<&str>) -> Result<SessionPage, StoreError> {
        self.reach()?.list(user, limit, cursor).await
    }
    async fn overdue(&self, bucket: u8, limit: usize) -> Result<Vec<Slot>, StoreError> {
        self.reach()?.overdue(bucket, limit).await
    }
    fn buckets(&self) -> u8 {
        self.inner.buckets()
    }
    fn announcements(&self) -> broadcast::Receiver<Announcement> {
        if self.silent.load(Ordering::SeqCst) { self.silence.subscribe() } else { self.inner.announcements() }
    }
    async fn ping(&self) -> Result<(), StoreError> {
        self.reach()?.ping().await
    }
    fn is_local(&self) -> bool {
        true
    }
}

/// A model that is led by the hand: each request waits for what the test does with it.
pub struct Puppet(mpsc::UnboundedSender<Asked>);

/// A request the model is in the middle of.
pub struct Asked {
    pub heard: Vec<String>,
    pub context: CallContext,
    answers: mpsc::UnboundedSender<Act>,
}

enum Act {
    Say(String),
    Reply(Result<ModelReply, ModelError>),
}

impl Puppet {
    pub fn new() -> (Self, mpsc::UnboundedReceiver<Asked>) {
        let (asked, asks) = mpsc::unbounded_channel();
        (Self(asked), asks)
    }
}

impl Asked {
    pub fn say(&self, text: &str) {
        let _ = self.answers.send(Act::Say(text.to_owned()));
    }

    pub fn reply(self, text: &str) {
        self.reply_with(vec![Block::text(text)]);
    }

    pub fn reply_with(self, content: Vec<Block>) {
        let usage = Usage { input_tokens: 2, output_tokens: 1, cached_tokens: 0 };
        let _ = self.answers.send(Act::Reply(Ok(ModelReply::new(content, usage))));
    }

    /// An answer that reached its limit, by another model than the one that was asked.
    pub fn cut(self, text: &str, model: &str) {
        let reply = ModelReply::new(vec![Block::text(text)], Usage::default());
        let (stop, model) = (ModelStop::MaxTokens, Some(model.to_owned()));
        let _ = self.answers.send(Act::Reply(Ok(ModelReply { stop, model, ..reply })));
    }

    pub fn fail(self, error: ModelError) {
        let _ = self.answers.send(Act::Reply(Err(error)));
    }

    /// Resolves when the model's request was abandoned.
    pub async fn abandoned(&self) {
        soon("the model to be abandoned", self.answers.closed()).await;
    }
}

#[async_trait]
impl Model for Puppet {
    async fn reply(&self, ask: Ask<'_>) -> Result<ModelReply, ModelError> {
        let heard = ask.transcript().filter_map(|entry| entry.message().ok()).map(|message| message.text());
        let (answers, mut acts) = mpsc::unbounded_channel();
        let asked = Asked { heard: heard.collect(), context: (**ask.context).clone(), answers };
        let _ = self.0.send(asked);
        loop {
            match acts.recv().await {
                Some(Act::Say(text)) => {
                    if let Some(pieces) = &ask.pieces {
                        let _ = pieces.send(Piece::Text(text));
                    }
                }
                Some(Act::Reply(reply)) => return reply,
                None => std::future::pending().await,
            }
        }
    }
}

pub async fn asked(asks: &mut mpsc::UnboundedReceiver<Asked>) -> Asked {
    soon("the model to be asked", asks.recv()).await.expect("a model")
}
