//! Every store there is. A new one needs a line in `every_store!` of the contract suite and a function here.

use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use futures::stream::BoxStream;
use holdfast_sidecar::store::file::{FileOptions, FileStore};
use holdfast_sidecar::store::redis::{Fault, Link, RedisConfig, RedisStore, Standalone};
use holdfast_sidecar::store::{Limits, MemoryStore, Store, StoreError};
use holdfast_tests::redis::{Options, RedisCluster, RedisServer};
use rand::Rng;
use redis::{Cmd, Pipeline, Value};

/// A store nobody else uses, with what it needs to live.
pub struct Opened {
    pub store: Arc<dyn Store>,
    _keep: Option<Box<dyn Send + Sync>>,
}

impl Opened {
    fn of(store: impl Store) -> Self {
        Self { store: Arc::new(store), _keep: None }
    }
}

pub fn memory(limits: Limits) -> Opened {
    Opened::of(MemoryStore::new(limits))
}

pub fn file(limits: Limits) -> Opened {
    let folder = tempfile::tempdir().expect("a folder");
    let store = FileStore::open(folder.path(), limits, FileOptions::default()).expect("a store");
    Opened { store: Arc::new(store), _keep: Some(Box::new(folder)) }
}

pub fn redis(limits: Limits) -> Opened {
    Opened::of(redis_store(limits))
}

pub fn redis_store(limits: Limits) -> RedisStore {
    RedisStore::open(RedisConfig::new(shared_url()), &random_prefix(), limits).expect("a store")
}

/// `HOLDFAST_TEST_REDIS_URL`, or a server that all tests of this process share.
pub fn shared_url() -> String {
    static SERVER: LazyLock<RedisServer> =
        LazyLock::new(|| Options::default().volatile().start().expect("a redis-server"));
    std::env::var("HOLDFAST_TEST_REDIS_URL").unwrap_or_else(|_| SERVER.url())
}

pub fn random_prefix() -> String {
    format!("test.{:016x}", rand::rng().random::<u64>())
}

/// Three cluster-enabled processes; each command goes to the node that has its keys.
pub fn cluster(limits: Limits) -> Opened {
    Opened::of(RedisStore::over(cluster_link(), &random_prefix(), limits).expect("a store"))
}

pub fn cluster_link() -> Arc<dyn Link> {
    static CLUSTER: LazyLock<RedisCluster> =
        LazyLock::new(|| RedisCluster::start().expect("three redis-servers"));
    let nodes = CLUSTER.nodes.iter();
    let nodes = nodes.map(|node| Standalone::new(RedisConfig::new(node.url())).expect("a node")).collect();
    Arc::new(Routed { nodes })
}

struct Routed {
    nodes: Vec<Standalone>,
}

#[async_trait]
impl Link for Routed {
    async fn send(&self, key: &str, command: &Cmd) -> Result<Value, Fault> {
        self.nodes[RedisCluster::node_of(key)].send(key, command).await
    }

    async fn send_all(&self, key: &str, commands: &Pipeline) -> Result<Vec<Value>, Fault> {
        self.nodes[RedisCluster::node_of(key)].send_all(key, commands).await
    }

    /// A cluster passes what is published on to all nodes.
    async fn subscribe(&self, channel: &str) -> Result<BoxStream<'static, Vec<u8>>, StoreError> {
        self.nodes[0].subscribe(channel).await
    }
}
