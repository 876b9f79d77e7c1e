//! The HTTP interface over real sockets: what a client is told, row by row of its tables, and what it can do to others.

mod address;
mod auth;
mod calls;
mod description;
mod drain;
mod events;
mod hostile;
mod kit;
mod platform;
mod state;
