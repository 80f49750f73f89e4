//! The harness: real components, loads, faults and checks for component and end-to-end tests.
//!
//! - [`settings`]: what the environment says about a run.
//! - [`skip`]: tiers that cannot run here say so.
//! - [`folder`], [`ports`], [`process`]: what every component needs.
//! - [`wait`]: conditions with deadlines.
//! - [`kafka`]: real Kafka clusters. [`etcd`]: a real etcd. [`hdfs`]: a real HDFS.
//! - [`proxy`]: faults of the network.
//! - [`record`]: test records that tell whether they are complete.
//! - [`contents`]: whole partitions, to write and to read back.
//! - [`load`]: writes them at a steady rate.
//! - [`checker`]: finds missing, repeated, reordered and altered ones.
//! - [`arrivals`]: when they arrived: pauses and latency.
//! - [`tail`]: reads a cluster live into a checker and arrivals.
//! - [`service`], [`system`]: our controllers and workers as processes.
//! - [`api`], [`http`]: their front doors.
//! - [`shared`]: what scenarios of a program share. [`rig`]: everything together, for end-to-end tests.
//! - [`commands`]: the program as an operator runs it, `verify` first of all.

pub mod api;
pub mod arrivals;
pub mod checker;
pub mod commands;
pub mod contents;
pub mod etcd;
pub mod folder;
pub mod hdfs;
pub mod http;
pub mod kafka;
pub mod load;
pub mod ports;
pub mod process;
pub mod proxy;
pub mod record;
pub mod rig;
pub mod service;
pub mod settings;
pub mod shared;
pub mod skip;
pub mod system;
pub mod tail;
pub mod wait;
