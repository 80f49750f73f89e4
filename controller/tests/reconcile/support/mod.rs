//! A fleet in one process.

pub(crate) mod fleet;
pub(crate) mod kafka;
pub(crate) mod logs;
pub(crate) mod registry;
pub(crate) mod store;
pub(crate) mod worker;

pub(crate) use fleet::{Fleet, Settings, link, link_topic, task};
pub(crate) use kafka::Mode;
pub(crate) use logs::Warnings;
pub(crate) use worker::Behaviour;
