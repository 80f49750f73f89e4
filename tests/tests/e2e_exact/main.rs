//! Every record once, in order and as it was, whatever happens to its owners: two real clusters, etcd, two
//! controllers and two workers under a steady load, and `kreplicator verify` over both sides in the end. Run
//! one at a time: they share a rig.

mod a_succession;
mod b_false_suspicion;
mod c_kills;
mod d_split_brain;
mod e_control_plane;
mod f_planned_move;
mod owners;
mod stage;
