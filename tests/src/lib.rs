//! What the suites share: processes, ports, clients.

pub mod cluster;
pub mod fake_model;
pub mod ledger;
pub mod checker;
pub mod http;
pub mod load;
pub mod replica;
