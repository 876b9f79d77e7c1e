//! What the suites share: processes, ports, clients.

pub mod cluster;
