//! `spec.filesystem`: the files an agent works on, and who shares them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{refs::OBJECT_NAME_PATTERN, units::Size};

/// The files an agent works on. The model is offered tools for them, and clients hand files in and take results out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Filesystem {
    /// `Local` is a folder: under the state folder on a laptop, a volume in a pod. `Remote` keeps the files in the
    /// agent's Redis, where every replica sees the same ones at once.
    #[serde(rename = "type")]
    pub kind: FilesystemType,
    /// Who shares one tree of files: the sessions of one `User` (an anonymous caller has its session's own), each
    /// `Session` for itself, everyone who talks to this `Agent`, or all agents on the same Redis or volume (`Global`).
    /// Cannot be changed later: what was written would be orphaned.
    #[serde(default)]
    pub isolation: Isolation,
    /// The largest file, up to 64Mi.
    #[serde(default = "default_max_file_size")]
    pub max_file_size: Size,
    /// The most that one tree may hold.
    #[serde(default = "default_max_tree_size")]
    pub max_tree_size: Size,
    /// The volume of a Local filesystem in a cluster. Absent: an empty folder that lives and dies with the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<FilesystemVolume>,
}

impl Filesystem {
    /// A filesystem of this type with everything else at its default.
    pub fn of(kind: FilesystemType) -> Self {
        Self {
            kind,
            isolation: Isolation::default(),
            max_file_size: default_max_file_size(),
            max_tree_size: default_max_tree_size(),
            volume: None,
        }
    }

    /// The named volume of a Local filesystem.
    pub fn claim(&self) -> Option<&FilesystemVolume> {
        self.volume.as_ref().filter(|_| self.kind == FilesystemType::Local)
    }
}

/// Where files are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum FilesystemType {
    Local,
    Remote,
}

/// Who shares one tree of files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Isolation {
    #[default]
    User,
    Session,
    Agent,
    Global,
}

/// A PersistentVolumeClaim that exists already.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FilesystemVolume {
    /// The claim's name, in the Agent's namespace.
    #[schemars(length(min = 1, max = 253), regex(pattern = OBJECT_NAME_PATTERN))]
    pub claim_name: String,
    /// How the claim may be mounted. More than one replica needs a claim that is `ReadWriteMany`; with
    /// `ReadWriteOnce` the old pod is stopped before a new one starts.
    #[serde(default)]
    pub access_mode: AccessMode,
}

/// How a volume may be mounted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum AccessMode {
    #[default]
    ReadWriteOnce,
    ReadWriteMany,
}

impl AccessMode {
    /// As Kubernetes spells it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::ReadWriteOnce => "ReadWriteOnce",
            Self::ReadWriteMany => "ReadWriteMany",
        }
    }
}

fn default_max_file_size() -> Size {
    Size::from_mebibytes(1)
}

fn default_max_tree_size() -> Size {
    Size::from_mebibytes(64)
}
