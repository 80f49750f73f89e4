//! What the tests of this crate share: a scripted engine and a store that can go away.
//!
//! Both watch over the rule that matters most, in every test that uses them: a task runs only while
//! the store lists it.

pub(crate) mod engine;
pub(crate) mod rig;
mod store;

pub(crate) use engine::{FakeEngine, FakeTask, Script};
pub(crate) use rig::{Rig, eventually, link_id, task, task_on};
pub(crate) use store::FlakyStore;
