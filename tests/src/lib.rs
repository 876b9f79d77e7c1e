//! What the suites share: processes, ports, clients.

pub mod apiserver;
pub mod certificates;
pub mod checker;
pub mod cluster;
pub mod fake_apiserver;
pub mod fake_collector;
pub mod fake_model;
pub mod fake_tools;
pub mod http;
pub mod ledger;
pub mod live;
pub mod load;
pub mod papers;
pub mod programs;
pub mod redis;
pub mod replica;
pub mod serve;
pub mod stage;
pub mod summary;
pub mod timeline;
pub mod unmodified;
