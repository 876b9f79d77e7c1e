//! A server of one's own to break.

mod access;
mod damage;
mod outage;

use std::sync::Arc;
use std::time::Duration;

use holdfast_sidecar::store::redis::{RedisConfig, RedisStore};
use holdfast_tests::redis::{Options, RedisServer};

use crate::support::requests::*;

const PREFIX: &str = "ns.agent";

struct Broken {
    server: RedisServer,
    talk: Talk,
}

impl Broken {
    fn new(options: Options) -> Self {
        let server = options.start().expect("a server");
        let talk = talk(config(&server));
        Self { server, talk }
    }

    fn command(&self, words: &[&str]) -> String {
        self.server.command(words).expect("an answer")
    }

    /// All data, as one hash.
    fn digest(&self) -> String {
        self.command(&["DEBUG", "DIGEST"])
    }

    /// The full name of the key that ends like this.
    fn key(&self, end: &str) -> String {
        let keys = self.command(&["KEYS", &format!("*{end}")]);
        assert_eq!(keys.lines().count(), 1, "{end}: {keys}");
        keys
    }
}

fn config(server: &RedisServer) -> RedisConfig {
    RedisConfig {
        connect_timeout: Duration::from_millis(400),
        response_timeout: Duration::from_millis(300),
        ..RedisConfig::new(server.url())
    }
}

fn talk(config: RedisConfig) -> Talk {
    let store = RedisStore::open(config, PREFIX, limits()).expect("a store");
    Talk { store: Arc::new(store), slot: slot("session") }
}
