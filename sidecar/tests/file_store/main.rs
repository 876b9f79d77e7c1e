//! The store in a folder: what a disk, a crash and a second process may do to it.

mod damage;
mod kill;
mod kit;
mod lifetime;
mod same_as_memory;
