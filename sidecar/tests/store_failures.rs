//! What goes wrong with a real server, and that nothing is lost, invented or half-written when it does.

mod failures;
mod support;
