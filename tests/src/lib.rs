//! What the suites share: processes, ports, clients.

pub mod cluster;
pub mod fake_model;
pub mod ledger;
