//! The contract on Redis: one Lua script an operation, the same decisions as the machine of `slot/`.
//!
//! ```text
//! mod.rs         RedisStore: calling a script
//! operations.rs  the contract: requests into scripts, answers out of them
//! script.rs      the scripts and their signatures        scripts/*.lua
//! record.rs      several numbers and texts in one field
//! log.rs         events, as they are sent and kept
//! keys.rs        the names of a slot's keys
//! decode.rs      reading answers
//! link.rs        the connection, and the seam for clusters and sentinels
//! fault.rs       what Redis' errors mean
//! list.rs        a user's sessions, a page at a time
//! announce.rs    hints from other replicas
//! ```

mod announce;
mod decode;
mod fault;
mod keys;
mod link;
mod list;
mod log;
mod operations;
mod record;
mod script;

use std::sync::Arc;

use redis::Value;
use tokio::sync::broadcast;

use self::announce::Subscriber;
use self::keys::{Key, Namespace};
use self::script::Scripts;
use super::contract::{Announcement, Limits};
use super::error::StoreError;
use crate::state::{CallId, Slot};

pub use self::fault::Fault;
pub use self::link::{Credentials, CredentialsSource, Link, RedisConfig, Standalone};
pub use self::script::commands;
/// For whoever else keeps things in the agent's Redis.
pub(crate) use self::{
    decode::Answer,
    keys::{encode, slot_name},
    script::{Ground, Invocation, SERVER_TIME, Script, commands_of, scripts},
};

pub struct RedisStore {
    link: Arc<dyn Link>,
    names: Namespace,
    limits: Limits,
    scripts: Scripts,
    announcements: broadcast::Sender<Announcement>,
    _subscriber: Subscriber,
    #[cfg(feature = "mutants")]
    clock: Option<Arc<std::sync::atomic::AtomicU64>>,
}

impl RedisStore {
    /// Connects when it is first used. `prefix` names the agent among all that share the server.
    pub fn open(config: RedisConfig, prefix: &str, limits: Limits) -> Result<Self, StoreError> {
        Self::over(Arc::new(Standalone::new(config)?), prefix, limits)
    }

    pub fn over(link: Arc<dyn Link>, prefix: &str, limits: Limits) -> Result<Self, StoreError> {
        let names = Namespace::new(prefix).ok_or_else(|| {
            StoreError::Failed(format!(
                "the prefix {prefix:?} cannot be used: it must not be empty or have braces"
            ))
        })?;
        let (announcements, _) = broadcast::channel(1024);
        let subscriber = Subscriber::start(Arc::clone(&link), names.channel(), announcements.clone());
        Ok(Self {
            link,
            names,
            scripts: Scripts::with(&limits),
            limits,
            announcements,
            _subscriber: subscriber,
            #[cfg(feature = "mutants")]
            clock: None,
        })
    }

    /// Goes by a test's clock instead of the server's.
    #[cfg(feature = "mutants")]
    #[must_use]
    pub fn on_clock(mut self, clock: Arc<std::sync::atomic::AtomicU64>) -> Self {
        self.scripts = Scripts::on_callers_time(&self.limits);
        self.clock = Some(clock);
        self
    }

    /// A call of a script, with the keys that it can do without most of the time or without them.
    fn on<'a>(&self, script: &'a Script, slot: &Slot, call: Option<&CallId>, all: bool) -> Invocation<'a> {
        Invocation::of_slot(script, &self.names.slot(slot), call, all)
    }

    async fn run(&self, invocation: Invocation<'_>) -> Result<Value, StoreError> {
        #[cfg(feature = "mutants")]
        let invocation = match &self.clock {
            Some(clock) => invocation.at(clock.load(std::sync::atomic::Ordering::SeqCst)),
            None => invocation,
        };
        invocation.send(&*self.link).await
    }

    async fn ask(&self, invocation: Invocation<'_>) -> Result<(String, Answer), StoreError> {
        let mut answer = Answer::of(self.run(invocation).await?)?;
        Ok((answer.text("an outcome")?, answer))
    }

    /// The replies and event logs of a deleted session. Nobody can reach them and each runs out by itself, so a
    /// failure here is only memory kept a while longer.
    async fn unlink(&self, slot: &Slot, mut calls: Answer) -> Result<(), StoreError> {
        let keys = self.names.slot(slot);
        let mut names = Vec::new();
        while !calls.is_empty() {
            let call = calls.call_id()?;
            names.extend([Key::Reply, Key::Events].iter().filter_map(|key| keys.key(*key, Some(&call))));
        }
        for some in names.chunks(500) {
            let mut unlink = redis::cmd("UNLINK");
            unlink.arg(some);
            if let Err(fault) = self.link.send(&some[0], &unlink).await {
                tracing::debug!(error = %StoreError::from(fault), "what a deleted session leaves is kept until it expires");
                break;
            }
        }
        Ok(())
    }
}
