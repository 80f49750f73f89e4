//! What tests stand on: a store in memory that can fail, a clock that is set, random numbers that repeat.

mod clock;
mod memory;
mod poll;
mod random;
mod watcher;

pub(crate) use clock::{NINE, SetClock};
pub(crate) use memory::{Faults, MemoryStore};
pub(crate) use poll::{finish, poll_once};
pub(crate) use random::Random;
pub(crate) use watcher::Noted;
