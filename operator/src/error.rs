//! What can go wrong in a reconcile: a variant a step. Each has a sentence for people and a label for metrics.

use crate::build::ManifestError;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("looking up {what} failed: {source}")]
    Dereference { what: String, source: Box<kube::Error> },
    #[error("{0}")]
    Build(#[from] ManifestError),
    #[error("applying {object} failed: {source}")]
    Apply { object: String, source: Box<kube::Error> },
    #[error("{object} exists and belongs to someone else; rename the Agent, or delete that object")]
    NameTaken { object: String },
    #[error("deleting {object} failed: {source}")]
    Delete { object: String, source: Box<kube::Error> },
    #[error("writing the status failed: {0}")]
    Status(Box<kube::Error>),
}

impl Error {
    pub fn label(&self) -> &'static str {
        match self {
            Self::Dereference { .. } => "dereference",
            Self::Build(_) => "build",
            Self::Apply { .. } => "apply",
            Self::NameTaken { .. } => "name_taken",
            Self::Delete { .. } => "delete",
            Self::Status(_) => "status",
        }
    }

    /// Trying again soon cannot help: only a change of the manifest or of the cluster can.
    pub fn is_permanent(&self) -> bool {
        match self {
            Self::Build(_) | Self::NameTaken { .. } => true,
            Self::Apply { source, .. } => {
                matches!(source.as_ref(), kube::Error::Api(status) if matches!(status.code, 400 | 403 | 422))
            }
            Self::Dereference { .. } | Self::Delete { .. } | Self::Status(_) => false,
        }
    }
}
