//! Which object: its kind, its namespace and its name.

use std::{fmt, sync::Arc};

use kube::Resource;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    ServiceAccount,
    ConfigMap,
    Secret,
    Service,
    DisruptionBudget,
    NetworkPolicy,
    Claim,
    StatefulSet,
    Deployment,
    Autoscaler,
    HttpRoute,
    ServiceMonitor,
}

/// `namespace/name`. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place(Arc<str>);

impl Place {
    pub fn new(namespace: &str, name: &str) -> Self {
        Self([namespace, "/", name].concat().into())
    }

    pub fn of(object: &impl Resource) -> Self {
        let meta = object.meta();
        Self::new(meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default())
    }

    pub fn namespace(&self) -> &str {
        self.parts().0
    }

    pub fn name(&self) -> &str {
        self.parts().1
    }

    fn parts(&self) -> (&str, &str) {
        self.0.split_once('/').unwrap_or_default()
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Key {
    pub kind: Kind,
    pub place: Place,
}

impl Key {
    pub fn new(kind: Kind, namespace: &str, name: &str) -> Self {
        Self { kind, place: Place::new(namespace, name) }
    }

    /// What bears the Agent's own name.
    pub fn of(kind: Kind, agent: &Place) -> Self {
        Self { kind, place: agent.clone() }
    }
}
