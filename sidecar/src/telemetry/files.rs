//! A workspace that is timed and whose bytes are counted, by who asks it: clients, or the tools of a model.

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;

use super::metrics::Metrics;
use crate::store::Millis;
use crate::workspace::{
    Condition, Content, Done, FileError, FilePath, Listing, Page, Part, Put, Stamp, Text, Tree, TreeLimits,
    Trees, Workspace,
};

struct Measured {
    metrics: Arc<Metrics>,
    by: &'static str,
    inner: Arc<dyn Trees>,
}

/// The same workspace; what is asked of it through this one counts as asked `by` that one.
pub fn measured_files(metrics: &Arc<Metrics>, by: &'static str, workspace: &Workspace) -> Workspace {
    workspace.over(|inner| Arc::new(Measured { metrics: Arc::clone(metrics), by, inner }))
}

impl Measured {
    async fn timed<T>(
        &self,
        operation: &'static str,
        answer: impl Future<Output = Result<T, FileError>>,
    ) -> Result<T, FileError> {
        let started = Instant::now();
        let answer = answer.await;
        let outcome = answer.as_ref().err().map_or("ok", FileError::label);
        self.metrics.file_answered(self.by, operation, outcome, started.elapsed());
        answer
    }

    fn count_read(&self, bytes: usize) {
        self.metrics.file_bytes(self.by, "read", bytes);
    }
}

#[async_trait]
impl Trees for Measured {
    fn limits(&self) -> &TreeLimits {
        self.inner.limits()
    }

    async fn read(&self, tree: &Tree, path: &FilePath, part: Part) -> Result<Option<Content>, FileError> {
        let found = self.timed("read", self.inner.read(tree, path, part)).await?;
        if let Some(content) = &found {
            self.count_read(content.bytes.len());
        }
        Ok(found)
    }

    async fn texts(&self, tree: &Tree, paths: &[String], budget: usize) -> Result<Vec<Text>, FileError> {
        let texts = self.timed("texts", self.inner.texts(tree, paths, budget)).await?;
        let sizes = texts.iter().map(|text| if let Text::Lines(bytes) = text { bytes.len() } else { 0 });
        self.count_read(sizes.sum());
        Ok(texts)
    }

    async fn list(&self, tree: &Tree, listing: &Listing) -> Result<Page, FileError> {
        self.timed("list", self.inner.list(tree, listing)).await
    }

    async fn put(&self, tree: &Tree, path: &FilePath, put: &Put) -> Result<Done, FileError> {
        let done = self.timed("put", self.inner.put(tree, path, put)).await?;
        if let Done::Written { .. } = &done {
            self.metrics.file_bytes(self.by, "written", put.bytes.len());
        }
        Ok(done)
    }

    async fn delete(&self, tree: &Tree, path: &FilePath, condition: &Condition) -> Result<bool, FileError> {
        self.timed("delete", self.inner.delete(tree, path, condition)).await
    }

    async fn recall(&self, tree: &Tree, stamp: &Stamp) -> Result<Option<String>, FileError> {
        self.timed("recall", self.inner.recall(tree, stamp)).await
    }

    async fn touch(&self, tree: &Tree) -> Result<(), FileError> {
        self.timed("touch", self.inner.touch(tree)).await
    }

    async fn clock(&self, tree: &Tree) -> Result<Millis, FileError> {
        self.timed("clock", self.inner.clock(tree)).await
    }

    async fn erase(&self, tree: &Tree, floor: Millis) -> Result<(), FileError> {
        self.timed("erase", self.inner.erase(tree, floor)).await
    }
}
