//! What can go wrong in a reconcile: a variant a step. Each has a sentence for people and a label for metrics.

use crate::{build::ManifestError, conditions::reason, traces::Labelled};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("looking up {what} failed: {}", words(source))]
    Dereference { what: String, source: Box<kube::Error> },
    #[error("{0}")]
    Build(#[from] ManifestError),
    #[error("applying {object} failed: {}", words(source))]
    Apply { object: String, source: Box<kube::Error> },
    #[error("{object} exists and belongs to someone else; rename the Agent, or delete that object")]
    NameTaken { object: String },
    #[error("deleting {object} failed: {}", words(source))]
    Delete { object: String, source: Box<kube::Error> },
    #[error("the API server did not answer in time")]
    TimedOut,
    #[error("writing the status failed: {}", words(.0))]
    Status(Box<kube::Error>),
}

impl Labelled for Error {
    fn label(&self) -> &'static str {
        match self {
            Self::Dereference { .. } => "dereference",
            Self::Build(_) => "build",
            Self::Apply { .. } => "apply",
            Self::NameTaken { .. } => "name_taken",
            Self::Delete { .. } => "delete",
            Self::TimedOut => "timed_out",
            Self::Status(_) => "status",
        }
    }
}

impl Error {
    /// Every label there is.
    pub const LABELS: [&str; 7] =
        ["dereference", "build", "apply", "name_taken", "delete", "timed_out", "status"];

    /// Why an Agent is not being worked on.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Dereference { .. } => reason::LOOKUP_FAILED,
            Self::TimedOut => reason::TIMED_OUT,
            Self::Build(_)
            | Self::Apply { .. }
            | Self::NameTaken { .. }
            | Self::Delete { .. }
            | Self::Status(_) => reason::APPLY_FAILED,
        }
    }

    /// Trying again soon cannot help: only a change of the manifest or of the cluster can.
    pub fn is_permanent(&self) -> bool {
        match self {
            Self::Build(_) | Self::NameTaken { .. } => true,
            Self::Apply { source, .. } => {
                matches!(source.as_ref(), kube::Error::Api(status) if matches!(status.code, 400 | 422))
            }
            Self::Dereference { .. } | Self::Delete { .. } | Self::TimedOut | Self::Status(_) => false,
        }
    }
}

/// What the API server said, without the rest of its answer: this stands in a condition for people to read.
fn words(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}
