//! What things are called: labels, annotations, names of owned objects, ports and paths in a pod.

use std::collections::BTreeMap;

use holdfast_crds::Agent;
use kube::ResourceExt as _;

use crate::live::Place;

/// One field manager for everything the operator applies.
pub const FIELD_MANAGER: &str = "holdfast-operator";

/// What the names of our labels and annotations begin with.
pub const OWN_PREFIX: &str = "holdfast.dev/";
pub const AGENT_LABEL: &str = "holdfast.dev/agent";
/// On the pods of a managed Redis, which the agent's own selector must not find.
pub const STORE_LABEL: &str = "holdfast.dev/store";
pub const MANAGED_BY_LABEL: &str = "app.kubernetes.io/managed-by";
pub const MANAGED_BY: &str = "holdfast";
/// On the operator's own pods, set by its chart: a managed Redis lets them in.
pub const OPERATOR_NAME: &str = "holdfast";

/// Changes when the manifest or the prompt does, so that the pods are rolled.
pub const MANIFEST_ANNOTATION: &str = "holdfast.dev/manifest";
/// Changes when a Secret or ConfigMap that the pods read does: uid and resourceVersion, never a hash of a value.
pub const REFERENCES_ANNOTATION: &str = "holdfast.dev/references";
/// `"true"` on an Agent: leave everything as it is until it is removed.
pub const PAUSED_ANNOTATION: &str = "holdfast.dev/paused";

pub const CLIENT_PORT: i32 = 8080;
pub const PLATFORM_PORT: i32 = 9090;
pub const REDIS_PORT: i32 = 6379;

pub const MANIFEST_DIR: &str = "/etc/holdfast";
pub const MANIFEST_FILE: &str = "agent.yaml";
pub const SECRETS_DIR: &str = "/var/run/holdfast/secrets";
pub const CONFIG_DIR: &str = "/var/run/holdfast/config";
pub const STORE_DIR: &str = "/var/lib/holdfast";
pub const WORKSPACE_DIR: &str = "/var/run/holdfast/workspace";

/// The unprivileged user of the images.
pub const NOBODY: i64 = 65532;

pub fn selector(agent: &Agent) -> BTreeMap<String, String> {
    BTreeMap::from([(AGENT_LABEL.to_owned(), agent.name_any())])
}

/// The same as it stands in a status.
pub fn selector_text(agent: &Place) -> String {
    format!("{AGENT_LABEL}={}", agent.name())
}

/// Where clients inside the cluster reach the agent.
pub fn endpoint(agent: &Place) -> String {
    format!("http://{}.{}.svc:{CLIENT_PORT}", agent.name(), agent.namespace())
}

pub fn store_selector(agent: &Agent) -> BTreeMap<String, String> {
    BTreeMap::from([(STORE_LABEL.to_owned(), agent.name_any())])
}

/// What the pods of an agent carry beside the selector.
pub fn labels(agent: &Agent, component: &str) -> BTreeMap<String, String> {
    BTreeMap::from([
        ("app.kubernetes.io/name".to_owned(), "holdfast-agent".to_owned()),
        ("app.kubernetes.io/instance".to_owned(), agent.name_any()),
        ("app.kubernetes.io/component".to_owned(), component.to_owned()),
        (MANAGED_BY_LABEL.to_owned(), MANAGED_BY.to_owned()),
    ])
}

/// A managed Redis' Service, StatefulSet, Secret and NetworkPolicy.
pub fn redis_name(agent: &Agent) -> String {
    format!("{}-redis", agent.name_any())
}

/// The claim the operator makes for a JsonFile store.
pub fn claim_name(agent: &Agent) -> String {
    format!("{}-store", agent.name_any())
}

pub fn is_paused(agent: &Agent) -> bool {
    agent.annotations().get(PAUSED_ANNOTATION).is_some_and(|value| value == "true")
}
