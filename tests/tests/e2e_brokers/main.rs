//! Brokers of targets and sources fail while everything flows: killed, frozen, stopped, with topics
//! deleted or refusing under the running system. One cluster of one broker and one of three, a
//! controller, two workers. Run one at a time: the scenarios share it all.

mod checkpoints;
mod deleted_topics;
mod leaders;
mod moves;
mod one_away;
mod random_moves;
mod stage;
mod target_faults;
mod too_large;
