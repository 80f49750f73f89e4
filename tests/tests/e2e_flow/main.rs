//! The main scenarios: two real clusters, etcd, two controllers and three workers under a steady load
//! of 2,000 records a second over 5 topics and 40 partitions. Run one at a time: they share a rig.

mod a_subscribe;
mod b_growth;
mod c_scale_out;
mod d_frozen_worker;
mod d_worker_loss;
mod e_control_plane;
mod f_mass;
mod k_lag;
mod l_metrics;
mod m_any_controller;
mod scrapes;
