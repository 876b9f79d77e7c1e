//! `spec.stateStore`: where conversations live.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    refs::{CertificatesFrom, OBJECT_NAME_PATTERN, REDIS_URL_PATTERN, SecretKeyRef},
    units::{Duration, Size},
};

pub const KEY_PREFIX_PATTERN: &str = r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$";

/// Where conversations live, and for how long.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StateStore {
    /// `Redis` is shared by all replicas and is what a cluster wants. `JsonFile` keeps conversations in files on
    /// one volume, `InMemory` only as long as the process lives: both allow one replica. Cannot be changed
    /// later: what was written would be orphaned.
    #[serde(rename = "type")]
    pub kind: StoreType,
    /// How Redis is reached. Only with `type: Redis`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redis: Option<Redis>,
    /// Where the files are. Only with `type: JsonFile`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub json_file: Option<JsonFile>,
    /// What every key in the store begins with. Absent: `<namespace>.<name>` of the Agent. Cannot be changed later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128), regex(pattern = KEY_PREFIX_PATTERN))]
    pub key_prefix: Option<String>,
    /// How long a session is kept after it was last used.
    #[serde(default = "default_session_ttl")]
    pub session_ttl: Duration,
    /// How long the answer to a finished call can be asked for again by its call id.
    #[serde(default = "default_reply_ttl")]
    pub reply_ttl: Duration,
    /// Memory each replica may use to keep recent sessions at hand. `0` turns the cache off.
    #[serde(default = "default_cache_size")]
    pub cache_size: Size,
}

impl StateStore {
    /// A store of this type with everything else at its default.
    pub fn of(kind: StoreType) -> Self {
        Self {
            kind,
            redis: None,
            json_file: None,
            key_prefix: None,
            session_ttl: default_session_ttl(),
            reply_ttl: default_reply_ttl(),
            cache_size: default_cache_size(),
        }
    }

    /// Asks the operator for a Redis of this Agent's own.
    pub fn managed(&self) -> Option<&ManagedRedis> {
        self.redis.as_ref()?.managed.as_ref()
    }
}

/// The kind of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum StoreType {
    Redis,
    JsonFile,
    InMemory,
}

impl StoreType {
    /// Only the process that wrote it can read it.
    pub fn is_local(self) -> bool {
        matches!(self, Self::JsonFile | Self::InMemory)
    }
}

/// How Redis is reached: exactly one of `url`, `urlSecretRef` and `managed`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Redis {
    /// `redis://host:6379/0`, or `rediss://…` for TLS. No user name or password in it: with one, use `urlSecretRef`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048), regex(pattern = REDIS_URL_PATTERN))]
    pub url: Option<String>,
    /// The Secret key that holds the whole URL, with user name and password where there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url_secret_ref: Option<SecretKeyRef>,
    /// Have the operator run a Redis for this Agent alone: one pod, every write synced to its volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub managed: Option<ManagedRedis>,
    /// TLS settings for a `rediss://` URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<RedisTls>,
}

/// A Redis the operator runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ManagedRedis {
    /// The size of its volume. Cannot be changed later.
    #[serde(default = "default_managed_storage")]
    pub storage: Size,
    /// The volume's storage class. Absent: the cluster's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = OBJECT_NAME_PATTERN))]
    pub storage_class_name: Option<String>,
    /// The Redis or Valkey image. Absent: the one the operator was installed with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub image: Option<String>,
    /// What happens to the volume, and so to all conversations, when the Agent is deleted.
    #[serde(default)]
    pub on_delete: OnDelete,
}

/// What happens to a volume when its Agent is deleted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OnDelete {
    #[default]
    Retain,
    Delete,
}

/// TLS towards Redis.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RedisTls {
    /// Certificate authorities to trust instead of the public ones, as PEM.
    pub ca_from: CertificatesFrom,
}

/// Where a JsonFile store keeps its files.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JsonFile {
    /// The folder, outside a cluster. Absent: `$HOLDFAST_STATE_DIR`, or `holdfast/<agent>` in the user's state folder
    /// (`$XDG_STATE_HOME`, `~/.local/state`). In a pod it is on the volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub path: Option<String>,
    /// The volume, in a cluster. Absent: a claim of 1Gi named after the Agent. Kept when the Agent is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<JsonFileVolume>,
}

/// The volume of a JsonFile store in a cluster.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JsonFileVolume {
    /// A PersistentVolumeClaim that exists already. Absent: the operator makes one. Cannot be changed later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = OBJECT_NAME_PATTERN))]
    pub claim_name: Option<String>,
    /// The size of the claim the operator makes.
    #[serde(default = "default_file_storage")]
    pub storage: Size,
    /// The storage class of the claim the operator makes. Absent: the cluster's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = OBJECT_NAME_PATTERN))]
    pub storage_class_name: Option<String>,
}

impl Default for JsonFileVolume {
    fn default() -> Self {
        Self { claim_name: None, storage: default_file_storage(), storage_class_name: None }
    }
}

fn default_session_ttl() -> Duration {
    Duration::from_hours(720)
}

fn default_reply_ttl() -> Duration {
    Duration::from_hours(24)
}

fn default_cache_size() -> Size {
    Size::from_mebibytes(64)
}

fn default_managed_storage() -> Size {
    Size::from_gibibytes(1)
}

fn default_file_storage() -> Size {
    Size::from_gibibytes(1)
}
