//! The dump's store on a real HDFS, and what it says when that fails.

#[path = "../../../dump/tests/contract/mod.rs"]
mod contract;

mod datanodes;
mod namenode;
mod refusals;
mod renames;
mod rig;

use contract::contract_tests;
use rig::Fresh;

contract_tests!(tokio::test(flavor = "multi_thread"), Fresh::start());
