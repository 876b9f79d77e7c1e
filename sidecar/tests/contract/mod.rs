//! What every store must do, case by case.

pub mod admission;
pub mod expiry;
pub mod history;
pub mod ids;
pub mod lease;
pub mod log;
pub mod manage;

use holdfast_sidecar::store::Limits;

use crate::support::requests::{Talk, slot};
use crate::support::stores::Opened;

/// The store under test.
#[derive(Clone, Copy)]
pub struct Bench {
    pub open: fn(Limits) -> Opened,
}

impl Bench {
    /// A conversation in a new store. Keep the first part.
    pub fn talk(&self, limits: Limits) -> (Opened, Talk) {
        let opened = (self.open)(limits);
        let talk = Talk { store: opened.store.clone(), slot: slot("session") };
        (opened, talk)
    }
}
