//! An API server without a cluster, an etcd or a latency: what a benchmark of the operator leans on.
//!
//! It speaks what the operator speaks, over a socket: list in pages, watch from a version with bookmarks, metadata
//! only where that is asked for, server-side apply, status, create, update, delete, Leases. Objects are JSON in memory;
//! nothing is validated, and an apply is a merge without ownership. Where behaviour matters, the suites use the real
//! API server: this one answers at once, and counts.
//!
//! ```text
//! wire (paths, verbs, streams) ──▶ store (objects, versions, who watches) ◀── a benchmark, in the same process
//! ```

mod store;
mod wire;

use std::{collections::BTreeMap, sync::Arc};

use anyhow::Result;
use serde_json::Value;
use tokio::{net::TcpListener, task::JoinHandle};

pub use store::{Applied, Refusal, Resource, Store};

/// Gone when dropped.
pub struct FakeApiServer {
    port: u16,
    store: Arc<Store>,
    serving: JoinHandle<()>,
}

impl FakeApiServer {
    pub async fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let (port, store) = (listener.local_addr()?.port(), Arc::new(Store::default()));
        let serving = tokio::spawn(wire::serve(listener, Arc::clone(&store)));
        Ok(Self { port, store, serving })
    }

    /// What a client needs to know.
    pub fn kubeconfig(&self) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: fake\n\
             clusters: [{{name: fake, cluster: {{server: 'http://127.0.0.1:{}'}}}}]\n\
             users: [{{name: fake, user: {{}}}}]\n\
             contexts: [{{name: fake, context: {{cluster: fake, user: fake}}}}]\n",
            self.port
        )
    }

    /// Creates or changes an object, as someone with kubectl would; no request is counted.
    pub fn apply(&self, resource: &Resource, object: &Value) -> Result<(), Refusal> {
        self.store.apply(resource, None, object, "kubectl").map(drop)
    }

    pub fn get(&self, resource: &Resource, namespace: &str, name: &str) -> Option<Arc<Value>> {
        self.store.get(resource, namespace, name).map(|object| Arc::clone(&object.value))
    }

    /// How many objects of this resource are as asked for.
    pub fn count(&self, resource: &Resource, is_so: impl Fn(&Value) -> bool) -> usize {
        self.store.count(resource, is_so)
    }

    /// Tells of every change of this resource from now on.
    pub fn changes(&self, resource: &Resource) -> tokio::sync::mpsc::UnboundedReceiver<Arc<Value>> {
        self.store.changes(resource)
    }

    /// How often anything was changed, and how often something of this resource.
    pub fn changed(&self, resource: &Resource) -> (u64, u64) {
        self.store.changed(resource)
    }

    /// How often each verb was used on each resource.
    pub fn calls(&self) -> BTreeMap<String, u64> {
        self.store.calls()
    }
}

impl Drop for FakeApiServer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}
