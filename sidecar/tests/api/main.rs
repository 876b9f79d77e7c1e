//! The HTTP interface over real sockets: what a client is told, row by row of its tables, and what it can do to others.

mod address;
mod auth;
mod calls;
mod description;
mod drain;
mod ends;
mod events;
mod files;
mod full;
mod hostile;
mod idle;
mod interrupts;
mod kit;
mod parts;
mod platform;
mod state;
mod tools;
