//! Every number the process counts, each a field with a name.

use std::time::Duration;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use tokio::runtime::Handle;

use crate::model::{ModelError, ModelReply};
use crate::session::Sessions;
use crate::store::{Ended, StoreError};

pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

type Label = [(&'static str, &'static str); 1];
type Labels = [(&'static str, &'static str); 2];
type FileLabels = [(&'static str, &'static str); 3];
type ToolLabel = Vec<(&'static str, String)>;

/// From a tenth of a millisecond, a warm store, to ten seconds, an outage.
const STORE_BUCKETS: [f64; 12] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 2.0, 10.0];
/// From a fast reply to a model that thinks.
const WORK_BUCKETS: [f64; 12] = [0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0];

pub struct Metrics {
    registry: Registry,
    /// Calls that ended here, by how.
    calls: Family<Label, Counter>,
    active: Gauge,
    waiting: Gauge,
    open_requests: Gauge,
    tasks: Gauge,
    cache_bytes: Gauge,
    resumes: Counter,
    lease_losses: Counter,
    model_seconds: Family<Label, Histogram>,
    tool_seconds: Family<ToolLabel, Histogram>,
    /// Why replies ended where they did.
    finishes: Family<Label, Counter>,
    tokens: Family<Label, Counter>,
    store_seconds: Family<Label, Histogram>,
    store_errors: Family<Labels, Counter>,
    /// What was asked of the workspace, by whom, and what came of it.
    file_seconds: Family<FileLabels, Histogram>,
    file_bytes: Family<Labels, Counter>,
    draining: Gauge,
    drain_seconds: Gauge<f64, std::sync::atomic::AtomicU64>,
}

impl Default for Metrics {
    fn default() -> Self {
        let work = || Histogram::new(WORK_BUCKETS);
        let store = || Histogram::new(STORE_BUCKETS);
        let mut metrics = Self {
            registry: Registry::with_prefix("holdfast"),
            calls: Family::default(),
            active: Gauge::default(),
            waiting: Gauge::default(),
            open_requests: Gauge::default(),
            tasks: Gauge::default(),
            cache_bytes: Gauge::default(),
            resumes: Counter::default(),
            lease_losses: Counter::default(),
            model_seconds: Family::new_with_constructor(work),
            tool_seconds: Family::new_with_constructor(work),
            finishes: Family::default(),
            tokens: Family::default(),
            store_seconds: Family::new_with_constructor(store),
            store_errors: Family::default(),
            file_seconds: Family::new_with_constructor(store),
            file_bytes: Family::default(),
            draining: Gauge::default(),
            drain_seconds: Gauge::default(),
        };
        metrics.register();
        metrics
    }
}

impl Metrics {
    fn register(&mut self) {
        let registry = &mut self.registry;
        registry.register("calls", "Calls that ended on this replica, by outcome", self.calls.clone());
        registry.register("calls_active", "Calls that run on this replica", self.active.clone());
        let waiting = "Clients of this replica whose call waits its turn or runs elsewhere";
        registry.register("calls_queued", waiting, self.waiting.clone());
        registry.register(
            "requests_open",
            "Requests whose answer is not complete",
            self.open_requests.clone(),
        );
        registry.register("tasks", "Tasks of the runtime that have not ended", self.tasks.clone());
        let cache = "Histories kept in memory";
        registry.register_with_unit("cache", cache, Unit::Bytes, self.cache_bytes.clone());
        registry.register(
            "resumes",
            "Calls taken over from another replica or process",
            self.resumes.clone(),
        );
        registry.register(
            "lease_losses",
            "Runs that lost their session to another",
            self.lease_losses.clone(),
        );
        let model = "Time to a model's whole reply, by outcome";
        registry.register_with_unit("model", model, Unit::Seconds, self.model_seconds.clone());
        let tool = "Time of a tool call, by tool and outcome";
        registry.register_with_unit("tool", tool, Unit::Seconds, self.tool_seconds.clone());
        let finishes = "Replies of models, by why they ended: stop, tool_call, length, content_filter";
        registry.register("model_replies", finishes, self.finishes.clone());
        registry.register("tokens", "Tokens of models, by direction", self.tokens.clone());
        let store = "Time of a store operation, by operation";
        registry.register_with_unit("store", store, Unit::Seconds, self.store_seconds.clone());
        registry.register("store_errors", "Failed store operations", self.store_errors.clone());
        let file = "Time of an operation on files, by who asked, operation and outcome";
        registry.register_with_unit("file", file, Unit::Seconds, self.file_seconds.clone());
        let file_bytes = "Bytes of files, by who asked and direction";
        registry.register("file_bytes", file_bytes, self.file_bytes.clone());
        registry.register("draining", "1 while the replica stops", self.draining.clone());
        let drain = "How long the drain took, or has taken so far";
        registry.register_with_unit("drain", drain, Unit::Seconds, self.drain_seconds.clone());
    }

    /// The text a scraper reads. Gauges are looked up now.
    pub fn render(&self, sessions: &Sessions, open_requests: usize) -> String {
        let set = |gauge: &Gauge, value: usize| gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        set(&self.active, sessions.running());
        set(&self.waiting, sessions.waiting());
        set(&self.open_requests, open_requests);
        if let Ok(runtime) = Handle::try_current() {
            set(&self.tasks, runtime.metrics().num_alive_tasks());
        }
        set(&self.cache_bytes, sessions.footprint().1);
        let mut text = String::with_capacity(16 << 10);
        // Writing to a string cannot fail.
        let _ = encode(&mut text, &self.registry);
        text
    }

    pub fn call_ended(&self, ended: Ended) {
        let outcome = match ended {
            Ended::Completed => "completed",
            Ended::Interrupted => "interrupted",
            Ended::Failed => "failed",
        };
        self.calls.get_or_create(&[("outcome", outcome)]).inc();
    }

    pub fn resumed(&self) {
        self.resumes.inc();
    }

    pub fn model_replied(&self, took: Duration, reply: Result<&ModelReply, &ModelError>) {
        let outcome = reply.map_or_else(ModelError::kind, |_| "ok");
        self.model_seconds.get_or_create(&[("outcome", outcome)]).observe(took.as_secs_f64());
        if let Ok(ModelReply { usage, stop, .. }) = reply {
            self.finishes.get_or_create(&[("finish", stop.as_str())]).inc();
            let directions = [
                ("input", usage.input_tokens),
                ("output", usage.output_tokens),
                ("cached", usage.cached_tokens),
            ];
            for (direction, tokens) in directions.into_iter().filter(|(_, tokens)| *tokens > 0) {
                self.tokens.get_or_create(&[("direction", direction)]).inc_by(tokens);
            }
        }
    }

    pub fn tool_answered(&self, tool: &str, outcome: &'static str, took: Duration) {
        let labels = vec![("tool", tool.to_owned()), ("outcome", outcome.to_owned())];
        self.tool_seconds.get_or_create(&labels).observe(took.as_secs_f64());
    }

    pub fn store_answered(&self, operation: &'static str, took: Duration, error: Option<&StoreError>) {
        self.store_seconds.get_or_create(&[("operation", operation)]).observe(took.as_secs_f64());
        match error {
            None => {}
            // Not a failure of the store: it says who lost.
            Some(StoreError::LeaseLost) => {
                self.lease_losses.inc();
            }
            Some(error) => {
                self.store_errors.get_or_create(&[("operation", operation), ("error", error.label())]).inc();
            }
        }
    }

    pub fn file_answered(
        &self,
        by: &'static str,
        operation: &'static str,
        outcome: &'static str,
        took: Duration,
    ) {
        let labels = [("by", by), ("operation", operation), ("outcome", outcome)];
        self.file_seconds.get_or_create(&labels).observe(took.as_secs_f64());
    }

    pub fn file_bytes(&self, by: &'static str, direction: &'static str, bytes: usize) {
        let counter = self.file_bytes.get_or_create(&[("by", by), ("direction", direction)]);
        counter.inc_by(u64::try_from(bytes).unwrap_or(u64::MAX));
    }

    pub fn drain(&self, so_far: Duration) {
        self.draining.set(1);
        self.drain_seconds.set(so_far.as_secs_f64());
    }
}
