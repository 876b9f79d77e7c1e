//! What the process says about itself: logs, numbers, and traces.
//!
//! A log line names a call and its session, never what was said, unless somebody asks for that in the environment.

pub mod files;
pub mod measured;
pub mod metrics;
pub mod traces;

use std::io::IsTerminal;
use std::sync::OnceLock;

use clap::ValueEnum;
use tracing_subscriber::EnvFilter;

pub use files::measured_files;
pub use measured::Measured;
pub use metrics::Metrics;
pub use traces::Traces;

/// What is logged where the environment says nothing.
const DEFAULT_FILTER: &str = "info";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// JSON in a pod, text elsewhere.
    Auto,
    Json,
    Pretty,
}

impl LogFormat {
    pub fn is_json(self) -> bool {
        match self {
            Self::Json => true,
            Self::Pretty => false,
            Self::Auto => std::env::var_os("KUBERNETES_SERVICE_HOST").is_some(),
        }
    }
}

/// Logs go to standard error; `HOLDFAST_LOG` or `RUST_LOG` says which.
pub fn start(format: LogFormat) {
    let filter = std::env::var("HOLDFAST_LOG").or_else(|_| std::env::var("RUST_LOG"));
    let filter = EnvFilter::builder().parse_lossy(filter.as_deref().unwrap_or(DEFAULT_FILTER));
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    if format.is_json() {
        logs.json().flatten_event(true).init();
    } else {
        logs.with_target(false).with_ansi(std::io::stderr().is_terminal()).init();
    }
}

/// Whether the texts of messages may stand in logs. Only where `HOLDFAST_LOG_CONTENT` says `true`.
pub fn logs_content() -> bool {
    static LOGS_CONTENT: OnceLock<bool> = OnceLock::new();
    *LOGS_CONTENT.get_or_init(|| std::env::var("HOLDFAST_LOG_CONTENT").is_ok_and(|value| value == "true"))
}
