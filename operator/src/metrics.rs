//! What the operator counts.

use std::{sync::atomic::AtomicI64, time::Duration};

use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};

use crate::error::Error;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Step {
    step: &'static str,
}

/// Cheap to clone: every clone counts into the same numbers.
#[derive(Clone)]
pub struct Metrics {
    reconciles: Counter,
    failures: Family<Step, Counter>,
    duration: Histogram,
    /// Requests that changed, or could have changed, something. At rest it stands still.
    pub writes: Counter,
    pub leader: Gauge<i64, AtomicI64>,
    registry: std::sync::Arc<Registry>,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("holdfast_operator");
        let reconciles = Counter::default();
        let failures = Family::<Step, Counter>::default();
        let duration = Histogram::new([0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0]);
        // From nothing to the first failure there would be no rate.
        Error::LABELS.iter().for_each(|step| drop(failures.get_or_create(&Step { step })));
        let (writes, leader) = (Counter::default(), Gauge::default());
        registry.register("reconciles", "Reconciles that succeeded", reconciles.clone());
        registry.register("reconcile_failures", "Reconciles that failed, by step", failures.clone());
        registry.register("reconcile_duration_seconds", "How long a reconcile took", duration.clone());
        registry.register("writes", "Requests that write to the API server", writes.clone());
        registry.register("leader", "Whether this process holds the lease", leader.clone());
        let registry = std::sync::Arc::new(registry);
        Self { reconciles, failures, duration, writes, leader, registry }
    }
}

impl Metrics {
    pub fn reconciled(&self, took: Duration) {
        self.reconciles.inc();
        self.duration.observe(took.as_secs_f64());
    }

    pub fn failed(&self, step: &'static str) {
        self.failures.get_or_create(&Step { step }).inc();
    }

    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing into a String cannot fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}
