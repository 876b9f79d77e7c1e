//! Random requests and the two stores that get them.

pub mod requests;
pub mod twins;
