//! Places at which a test can kill this process: before and after every store operation, model call and tool run.
//!
//! Only in builds with the feature `failpoints`. `FAILPOINTS="store.commit.after=return"` (the syntax of the `fail` crate) makes the
//! process die there as if by SIGKILL: no destructor runs, nothing is flushed.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::broadcast;

use crate::model::{Ask, Model, ModelError, ModelReply};
use crate::state::{CallId, Id, Slot};
use crate::store::*;
use crate::tools::{ToolCall, ToolOutput, ToolSpec, Tools};
use crate::workspace::{self, Content, Done, FileError, FilePath, Listing, Page, Part, Put, Stamp, Text};
use crate::workspace::{Tree, TreeLimits, Trees, Workspace};

/// Every place there is, so that a test can show that it has died at each.
pub const POINTS: [&str; 24] = [
    "store.begin.before",
    "store.begin.after",
    "store.claim.before",
    "store.claim.after",
    "store.append.before",
    "store.append.after",
    "store.renew.before",
    "store.renew.after",
    "store.commit.before",
    "store.commit.after",
    "store.suspend.before",
    "store.suspend.after",
    "store.interrupt.before",
    "store.interrupt.after",
    "store.retry.before",
    "store.retry.after",
    "store.rewrite.before",
    "store.rewrite.after",
    "store.delete.before",
    "store.delete.after",
    "model.reply.before",
    "model.reply.after",
    "tool.run.before",
    "tool.run.after",
];

/// Those around and within a write of a file: half of its content written, all of it, the tool call recorded, the file
/// in its place.
pub const FILE_POINTS: [&str; 6] = [
    "files.put.before",
    "files.put.after",
    "files.local.half",
    "files.local.content",
    "files.local.record",
    "files.local.rename",
];

/// Wraps the files too.
pub fn armed_files(workspace: &Workspace) -> Workspace {
    workspace.over(|trees| Arc::new(Armed(trees)))
}

/// Wraps all three, and reads `FAILPOINTS`.
pub fn armed(
    store: Arc<dyn Store>,
    model: Arc<dyn Model>,
    tools: Arc<dyn Tools>,
) -> (Arc<dyn Store>, Arc<dyn Model>, Arc<dyn Tools>) {
    // Lives as long as the process: the points are looked up until its end, which is often by one of them.
    std::mem::forget(fail::FailScenario::setup());
    (Arc::new(Armed(store)), Arc::new(Armed(model)), Arc::new(Armed(tools)))
}

pub fn point(name: &'static str) {
    fail::fail_point!(name, |_| die(name));
}

fn die(name: &str) {
    eprintln!("failpoint {name}: dying here");
    // The process is not PID 1 of anything in a test, so that its own SIGKILL reaches it.
    let _ = std::process::Command::new("kill").args(["-9", &std::process::id().to_string()]).status();
    loop {
        std::thread::park();
    }
}

struct Armed<T: ?Sized>(Arc<T>);

macro_rules! around {
    ($name:literal, $operation:expr) => {{
        point(concat!($name, ".before"));
        let answer = $operation.await;
        point(concat!($name, ".after"));
        answer
    }};
}

#[async_trait]
impl Store for Armed<dyn Store> {
    async fn begin(&self, slot: &Slot, begin: &Begin) -> Result<Begun, StoreError> {
        around!("store.begin", self.0.begin(slot, begin))
    }
    async fn claim(&self, slot: &Slot, claim: &Claim) -> Result<Claimed, StoreError> {
        around!("store.claim", self.0.claim(slot, claim))
    }
    async fn append(&self, slot: &Slot, append: &Append) -> Result<Pulse, StoreError> {
        around!("store.append", self.0.append(slot, append))
    }
    async fn renew(&self, slot: &Slot, renew: &Renew) -> Result<Pulse, StoreError> {
        around!("store.renew", self.0.renew(slot, renew))
    }
    async fn commit(&self, slot: &Slot, commit: &Commit) -> Result<Committed, StoreError> {
        around!("store.commit", self.0.commit(slot, commit))
    }
    async fn suspend(&self, slot: &Slot, suspend: &Suspend) -> Result<(), StoreError> {
        around!("store.suspend", self.0.suspend(slot, suspend))
    }
    async fn interrupt(&self, slot: &Slot, call: &CallId, mark: &Blob) -> Result<Interrupted, StoreError> {
        around!("store.interrupt", self.0.interrupt(slot, call, mark))
    }
    async fn retry(&self, slot: &Slot, retry: &Retry) -> Result<Retried, StoreError> {
        around!("store.retry", self.0.retry(slot, retry))
    }
    async fn rewrite(&self, slot: &Slot, rewrite: &Rewrite) -> Result<Rewritten, StoreError> {
        around!("store.rewrite", self.0.rewrite(slot, rewrite))
    }
    async fn delete(&self, slot: &Slot) -> Result<bool, StoreError> {
        around!("store.delete", self.0.delete(slot))
    }

    // Reading changes nothing: dying around it is dying anywhere.
    async fn load(&self, slot: &Slot, last: Option<usize>) -> Result<Option<Loaded>, StoreError> {
        self.0.load(slot, last).await
    }
    async fn status(&self, slot: &Slot, call: &CallId) -> Result<CallStatus, StoreError> {
        self.0.status(slot, call).await
    }
    async fn live(&self, slot: &Slot) -> Result<Vec<LiveCall>, StoreError> {
        self.0.live(slot).await
    }
    async fn events(
        &self,
        slot: &Slot,
        call: &CallId,
        after: Option<EventId>,
    ) -> Result<EventPage, StoreError> {
        self.0.events(slot, call, after).await
    }
    async fn list(&self, user: &Id, limit: usize, cursor: Option<&str>) -> Result<SessionPage, StoreError> {
        self.0.list(user, limit, cursor).await
    }
    async fn overdue(&self, bucket: u8, limit: usize) -> Result<Vec<Slot>, StoreError> {
        self.0.overdue(bucket, limit).await
    }
    fn buckets(&self) -> u8 {
        self.0.buckets()
    }
    fn announcements(&self) -> broadcast::Receiver<Announcement> {
        self.0.announcements()
    }
    async fn ping(&self) -> Result<(), StoreError> {
        self.0.ping().await
    }
    fn is_local(&self) -> bool {
        self.0.is_local()
    }
}

#[async_trait]
impl Model for Armed<dyn Model> {
    async fn reply(&self, ask: Ask<'_>) -> Result<ModelReply, ModelError> {
        around!("model.reply", self.0.reply(ask))
    }
}

#[async_trait]
impl Tools for Armed<dyn Tools> {
    fn specs(&self) -> Arc<Vec<ToolSpec>> {
        self.0.specs()
    }
    async fn run(&self, call: ToolCall<'_>) -> ToolOutput {
        around!("tool.run", self.0.run(call))
    }
}

#[async_trait]
impl Trees for Armed<dyn Trees> {
    fn limits(&self) -> &TreeLimits {
        self.0.limits()
    }
    async fn put(&self, tree: &Tree, path: &FilePath, put: &Put) -> Result<Done, FileError> {
        around!("files.put", self.0.put(tree, path, put))
    }

    // A call that writes nothing, or a client's request: dying around it is dying anywhere.
    async fn read(&self, tree: &Tree, path: &FilePath, part: Part) -> Result<Option<Content>, FileError> {
        self.0.read(tree, path, part).await
    }
    async fn texts(&self, tree: &Tree, paths: &[String], budget: usize) -> Result<Vec<Text>, FileError> {
        self.0.texts(tree, paths, budget).await
    }
    async fn list(&self, tree: &Tree, listing: &Listing) -> Result<Page, FileError> {
        self.0.list(tree, listing).await
    }
    async fn delete(
        &self,
        tree: &Tree,
        path: &FilePath,
        condition: &workspace::Condition,
    ) -> Result<bool, FileError> {
        self.0.delete(tree, path, condition).await
    }
    async fn recall(&self, tree: &Tree, stamp: &Stamp) -> Result<Option<String>, FileError> {
        self.0.recall(tree, stamp).await
    }
    async fn touch(&self, tree: &Tree) -> Result<(), FileError> {
        self.0.touch(tree).await
    }
    async fn clock(&self, tree: &Tree) -> Result<Millis, FileError> {
        self.0.clock(tree).await
    }
    async fn erase(&self, tree: &Tree, floor: Millis) -> Result<(), FileError> {
        self.0.erase(tree, floor).await
    }
}
