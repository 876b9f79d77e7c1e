//! What the suites share: processes, ports, clients.
