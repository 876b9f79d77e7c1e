//! The `Agent` type: its fields, its defaults and its rules. Knows nothing but the type; no I/O.
//!
//! ```text
//! agent, model, store, filesystem,
//! behaviour, pod, exposure              what a manifest may say, one file a concern
//! units, refs                           the words it is said in
//! rules                                 what may not be said together: one table for CEL and for Rust
//! schema                                the CustomResourceDefinition made of all these
//! manifest                              a manifest read strictly, every mistake with its line
//! generate                              the files that are committed, made of the schema
//! ```

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod agent;
pub mod behaviour;
pub mod exposure;
pub mod filesystem;
pub mod generate;
pub mod manifest;
pub mod model;
pub mod pod;
pub mod refs;
pub mod rules;
pub mod schema;
pub mod store;
pub mod units;

pub use agent::{Agent, AgentSpec, AgentStatus, Autoscaling};
pub use behaviour::{
    Auth, AuthType, Durability, Loop, McpServer, OnBusy, Resume, Safety, Session, Shutdown, ToolServer,
};
pub use exposure::{HttpRoute, ParentRef, ServiceMonitor};
pub use filesystem::{AccessMode, Filesystem, FilesystemType, FilesystemVolume, Isolation};
pub use model::{Model, Parameters, Provider, Script, ScriptedFailure, ScriptedReply, ScriptedToolCall};
pub use pod::{
    Companion, Egress, EmptyDir, EnvVar, ImagePullSecret, NamedObject, NetworkAccess, Peer, PodTemplate,
    Resources, Volume,
};
pub use refs::{CertificatesFrom, ConfigMapKeyRef, HeaderFrom, SecretKeyRef, TextFrom};
pub use store::{JsonFile, JsonFileVolume, ManagedRedis, OnDelete, Redis, RedisTls, StateStore, StoreType};
pub use units::{Duration, Size, UnitError};

pub const GROUP: &str = "holdfast.dev";
pub const VERSION: &str = "v1alpha1";
