//! References to what lives beside an Agent: keys of Secrets and ConfigMaps. Never a value.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub const OBJECT_NAME_PATTERN: &str = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$";
pub const DATA_KEY_PATTERN: &str = r"^[-._a-zA-Z0-9]+$";
pub const HEADER_PATTERN: &str = r"^[A-Za-z0-9!#$%&'*+.^_`|~-]+$";
pub const HTTP_URL_PATTERN: &str = r"^https?://[^\s/?#]+[^\s]*$";
pub const REDIS_URL_PATTERN: &str = r"^rediss?://[^\s/?#]+[^\s]*$";

/// A key of a Secret in the Agent's namespace.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub struct SecretKeyRef {
    /// The Secret's name.
    #[schemars(length(min = 1, max = 253), regex(pattern = OBJECT_NAME_PATTERN))]
    pub name: String,
    /// The key inside it.
    #[schemars(length(min = 1, max = 253), regex(pattern = DATA_KEY_PATTERN))]
    pub key: String,
}

/// A key of a ConfigMap in the Agent's namespace.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub struct ConfigMapKeyRef {
    /// The ConfigMap's name.
    #[schemars(length(min = 1, max = 253), regex(pattern = OBJECT_NAME_PATTERN))]
    pub name: String,
    /// The key inside it.
    #[schemars(length(min = 1, max = 253), regex(pattern = DATA_KEY_PATTERN))]
    pub key: String,
}

/// Where a text is read from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TextFrom {
    /// A key of a ConfigMap in the Agent's namespace. When it changes, the pods are rolled.
    pub config_map_key_ref: ConfigMapKeyRef,
}

/// Where certificates are read from: exactly one of the two.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CertificatesFrom {
    /// A key of a ConfigMap that holds PEM certificates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map_key_ref: Option<ConfigMapKeyRef>,
    /// A key of a Secret that holds PEM certificates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_key_ref: Option<SecretKeyRef>,
}

/// A request header whose value is a secret.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HeaderFrom {
    /// The header's name, for example `Authorization`.
    #[schemars(length(min = 1, max = 128), regex(pattern = HEADER_PATTERN))]
    pub name: String,
    /// The key of a Secret that holds the whole value, for example `Bearer …`.
    pub secret_key_ref: SecretKeyRef,
}
