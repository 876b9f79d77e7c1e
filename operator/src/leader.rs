//! One process at a time: a Lease that is held, renewed and given back.
//!
//! A write carries the resourceVersion it was read at, so two processes never both believe they took it. Whoever
//! cannot renew for `RENEW_DEADLINE` stops being a leader before anyone else may become one, by leaving.

use std::time::Duration;

use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
    jiff::Timestamp,
};
use kube::{Api, api::PostParams};
use tokio::time::{Instant, sleep, timeout};

/// Others wait this long without a renewal before they take over.
const LEASE_DURATION: Duration = Duration::from_secs(10);
/// A holder that has not renewed for this long gives up. Shorter than the lease, by more than one attempt.
const RENEW_DEADLINE: Duration = Duration::from_secs(7);
const RETRY: Duration = Duration::from_secs(2);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Debug, thiserror::Error)]
pub enum LeaderError {
    #[error("the lease could not be renewed for {} s; leaving it to others", RENEW_DEADLINE.as_secs())]
    Lost,
}

pub struct Election {
    pub api: Api<Lease>,
    pub name: String,
    pub identity: String,
}

impl Election {
    /// Returns once the lease is ours.
    pub async fn won(&self) {
        // By our own clock: how long the record has looked the same, never what time it claims.
        let mut seen: Option<(String, Instant)> = None;
        loop {
            match timeout(REQUEST_TIMEOUT, self.attempt(&mut seen)).await {
                Ok(Ok(true)) => return,
                Ok(Ok(false)) => {}
                Ok(Err(error)) => tracing::warn!(%error, "the lease could not be read or taken"),
                Err(_) => tracing::warn!("the lease could not be read or taken in time"),
            }
            sleep(RETRY).await;
        }
    }

    /// Returns only when the lease is lost.
    pub async fn lost(&self) -> LeaderError {
        let mut renewed = Instant::now();
        loop {
            sleep(RETRY).await;
            match timeout(REQUEST_TIMEOUT, self.renew()).await {
                Ok(Ok(true)) => renewed = Instant::now(),
                Ok(Ok(false)) => return LeaderError::Lost,
                Ok(Err(error)) => tracing::warn!(%error, "the lease could not be renewed"),
                Err(_) => tracing::warn!("the lease could not be renewed in time"),
            }
            if renewed.elapsed() > RENEW_DEADLINE {
                return LeaderError::Lost;
            }
        }
    }

    /// Give it back, so that the next one need not wait.
    pub async fn release(&self) {
        let released = timeout(REQUEST_TIMEOUT, async {
            let Some(mut lease) = self.api.get_opt(&self.name).await? else { return Ok(()) };
            if holder(&lease) != Some(&self.identity) {
                return Ok(());
            }
            if let Some(spec) = &mut lease.spec {
                spec.holder_identity = None;
            }
            self.api.replace(&self.name, &PostParams::default(), &lease).await.map(|_| ())
        });
        if !matches!(released.await, Ok(Ok(()))) {
            tracing::warn!("the lease could not be given back; the next leader waits for it to expire");
        }
    }

    async fn attempt(&self, seen: &mut Option<(String, Instant)>) -> Result<bool, kube::Error> {
        let Some(lease) = self.api.get_opt(&self.name).await? else {
            let lease = Lease {
                metadata: ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() },
                spec: Some(self.held(None)),
            };
            return taken(self.api.create(&PostParams::default(), &lease).await);
        };
        let version = lease.metadata.resource_version.clone().unwrap_or_default();
        let since = match seen {
            Some((known, since)) if *known == version => *since,
            _ => {
                *seen = Some((version, Instant::now()));
                Instant::now()
            }
        };
        let free = holder(&lease).is_none_or(|holder| holder == &self.identity);
        if free || since.elapsed() > LEASE_DURATION { self.take(lease).await } else { Ok(false) }
    }

    async fn renew(&self) -> Result<bool, kube::Error> {
        let lease = self.api.get(&self.name).await?;
        if holder(&lease) == Some(&self.identity) { self.take(lease).await } else { Ok(false) }
    }

    async fn take(&self, mut lease: Lease) -> Result<bool, kube::Error> {
        lease.spec = Some(self.held(lease.spec.take()));
        taken(self.api.replace(&self.name, &PostParams::default(), &lease).await)
    }

    fn held(&self, before: Option<LeaseSpec>) -> LeaseSpec {
        let before = before.unwrap_or_default();
        let now = MicroTime(Timestamp::now());
        let ours = before.holder_identity.as_ref() == Some(&self.identity);
        LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: i32::try_from(LEASE_DURATION.as_secs()).ok(),
            acquire_time: if ours { before.acquire_time } else { Some(now.clone()) },
            renew_time: Some(now),
            lease_transitions: Some(before.lease_transitions.unwrap_or_default() + i32::from(!ours)),
            ..LeaseSpec::default()
        }
    }
}

fn holder(lease: &Lease) -> Option<&String> {
    lease.spec.as_ref()?.holder_identity.as_ref().filter(|holder| !holder.is_empty())
}

/// Someone else being quicker is no failure.
fn taken(written: Result<Lease, kube::Error>) -> Result<bool, kube::Error> {
    match written {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
        Err(error) => Err(error),
    }
}
