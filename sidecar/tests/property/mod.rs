//! Random requests and the two stores that get them.

pub mod answers;
pub mod fixture;
pub mod requests;
pub mod twins;
