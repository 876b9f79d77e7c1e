//! A witness of an Agent's pods: when each came, was told to stop, and ended, and with which exit code. A pod's last status
//! is gone with the pod, so somebody has to look while it happens.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Result, ensure};
use futures::StreamExt;
use k8s_openapi::api::core::v1::{ContainerState, Pod};
use kube::api::{Api, ListParams, WatchEvent, WatchParams};
use kube::{Client, ResourceExt as _};

use crate::ledger::now_millis;

/// The container the agent runs in.
const AGENT: &str = "agent";

/// One pod. Times are milliseconds since 1970, by this machine's clock, when the API server told of it.
#[derive(Debug, Clone, Default)]
pub struct Life {
    pub node: String,
    pub created: u64,
    pub ready: Option<u64>,
    /// Told to stop.
    pub deleted: Option<u64>,
    pub gone: Option<u64>,
    /// What it may take to stop.
    pub grace: Duration,
    /// Every end of its agent's process, in order.
    pub ends: Vec<End>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End {
    pub at: u64,
    pub exit_code: i32,
    pub reason: String,
    container: String,
}

impl Life {
    /// From being told to stop to the end of its process.
    pub fn stopping(&self) -> Option<Duration> {
        let end = self.ends.last()?;
        self.deleted.map(|deleted| Duration::from_millis(end.at.saturating_sub(deleted)))
    }
}

#[derive(Clone)]
pub struct Pods(Arc<Mutex<BTreeMap<String, Life>>>);

impl Pods {
    /// Looks on for as long as the runtime lives.
    pub async fn of(client: Client, namespace: &str, agent: &str) -> Result<Self> {
        let pods = Self(Arc::default());
        let api: Api<Pod> = Api::namespaced(client, namespace);
        let selector = format!("holdfast.dev/agent={agent}");
        let mut version = pods.list(&api, &selector).await?;
        let witness = pods.clone();
        tokio::spawn(async move {
            loop {
                // A watch ends after some minutes; what was missed meanwhile is in the list.
                witness.watch(&api, &selector, &version).await;
                tokio::time::sleep(Duration::from_millis(100)).await;
                if let Ok(found) = witness.list(&api, &selector).await {
                    version = found;
                }
            }
        });
        Ok(pods)
    }

    async fn list(&self, api: &Api<Pod>, selector: &str) -> Result<String> {
        let found = api.list(&ListParams::default().labels(selector)).await?;
        for pod in &found {
            self.see(pod);
        }
        Ok(found.metadata.resource_version.unwrap_or_default())
    }

    async fn watch(&self, api: &Api<Pod>, selector: &str, version: &str) {
        let params = WatchParams::default().labels(selector).timeout(280);
        let Ok(events) = api.watch(&params, version).await else { return };
        let mut events = std::pin::pin!(events);
        while let Some(Ok(event)) = events.next().await {
            match event {
                WatchEvent::Added(pod) | WatchEvent::Modified(pod) => self.see(&pod),
                WatchEvent::Deleted(pod) => {
                    self.see(&pod);
                    self.lock().entry(pod.name_any()).or_default().gone.get_or_insert_with(now_millis);
                }
                WatchEvent::Bookmark(_) => {}
                WatchEvent::Error(_) => return,
            }
        }
    }

    fn see(&self, pod: &Pod) {
        let now = now_millis();
        let mut lives = self.lock();
        let life = lives.entry(pod.name_any()).or_default();
        if life.created == 0 {
            life.created = now;
        }
        let spec = pod.spec.clone().unwrap_or_default();
        life.node = spec.node_name.unwrap_or_default();
        life.grace = Duration::from_secs(spec.termination_grace_period_seconds.unwrap_or(0).unsigned_abs());
        if pod.metadata.deletion_timestamp.is_some() {
            life.deleted.get_or_insert(now);
        }
        let status = pod.status.clone().unwrap_or_default();
        let ready = status.conditions.iter().flatten().any(|c| c.type_ == "Ready" && c.status == "True");
        if ready {
            life.ready.get_or_insert(now);
        }
        for container in status.container_statuses.iter().flatten().filter(|status| status.name == AGENT) {
            for state in [&container.last_state, &container.state] {
                life.ends.extend(
                    ended(state.as_ref(), now)
                        .filter(|end| life.ends.iter().all(|known| known.container != end.container)),
                );
            }
        }
    }

    pub fn lives(&self) -> BTreeMap<String, Life> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Life>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Every process that has ended did so by itself, with exit code 0, within half of what it was given.
    pub fn ended_well(&self) -> Result<usize> {
        let lives = self.lives();
        let mut ended = 0;
        for (name, life) in &lives {
            ensure!(life.gone.is_none() || !life.ends.is_empty(), "{name} went without an end anybody saw");
            for end in &life.ends {
                ensure!(end.exit_code == 0, "{name} ended with {} ({})", end.exit_code, end.reason);
                ended += 1;
            }
            if let Some(took) = life.stopping() {
                ensure!(took < life.grace / 2, "{name} took {took:?} of its {:?} to stop", life.grace);
            }
        }
        Ok(ended)
    }
}

fn ended(state: Option<&ContainerState>, now: u64) -> Option<End> {
    let ended = state?.terminated.as_ref()?;
    Some(End {
        at: now,
        exit_code: ended.exit_code,
        reason: ended.reason.clone().unwrap_or_default(),
        container: ended.container_id.clone().unwrap_or_default(),
    })
}
