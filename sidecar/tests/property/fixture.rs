//! The Redis side of a comparison.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use holdfast_sidecar::store::redis::{RedisConfig, RedisStore};
use holdfast_sidecar::store::*;

use crate::support::eventually;
use crate::support::requests::{Talk, slot};
use crate::support::stores::{random_prefix, shared_url};

/// A Redis store that hears its own announcements, used for one sequence after another.
pub struct Fixture {
    pub store: Arc<dyn Store>,
    pub clock: Arc<AtomicU64>,
    pub limits: Limits,
    pub heard: tokio::sync::broadcast::Receiver<Announcement>,
    prefix: String,
    connection: ::redis::aio::MultiplexedConnection,
}

impl Fixture {
    pub async fn new(limits: Limits) -> Self {
        let clock = Arc::new(AtomicU64::new(wall()));
        let prefix = random_prefix();
        let store = RedisStore::open(RedisConfig::new(shared_url()), &prefix, limits.clone())
            .expect("a store")
            .on_clock(Arc::clone(&clock));
        let client = ::redis::Client::open(shared_url()).expect("a client");
        let connection = client.get_multiplexed_async_connection().await.expect("a connection");
        let mut heard = store.announcements();
        let talk = Talk { store: Arc::new(store), slot: slot("warm") };
        talk.granted("one").await;
        eventually("a subscription", || async {
            talk.interrupt("one", "{}").await;
            tokio::time::sleep(Duration::from_millis(5)).await;
            (!heard.is_empty()).then_some(())
        })
        .await;
        while let Ok(Ok(_)) = tokio::time::timeout(Duration::from_millis(50), heard.recv()).await {}
        let fixture = Self { store: talk.store, clock, limits, heard, prefix, connection };
        fixture.keys(true).await;
        fixture
    }

    /// The keys there are, with the times they run out.
    pub async fn keys(&self, unlink: bool) -> BTreeMap<String, i64> {
        let mut connection = self.connection.clone();
        let pattern = format!("hf:{{{}.*", self.prefix);
        let keys: Vec<String> =
            ::redis::cmd("KEYS").arg(pattern).query_async(&mut connection).await.expect("keys");
        if keys.is_empty() {
            return BTreeMap::new();
        }
        let mut pipe = ::redis::pipe();
        for key in &keys {
            pipe.cmd("PEXPIRETIME").arg(key);
        }
        if unlink {
            pipe.cmd("UNLINK").arg(&keys).ignore();
        }
        let times: Vec<i64> = pipe.query_async(&mut connection).await.expect("times");
        keys.into_iter().zip(times).collect()
    }
}

pub fn wall() -> u64 {
    u64::try_from(jiff::Timestamp::now().as_millisecond()).expect("a time")
}
