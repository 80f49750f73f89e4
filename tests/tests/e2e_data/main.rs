//! What lies in topics: whole batches, transactions, compaction, codecs, times, large and damaged records,
//! each over two links of the same clusters, one for each engine. Two real clusters, etcd, a controller and
//! a worker. Run one at a time: they share a stage.

mod a_whole_batches;
mod b_transactions;
mod c_compaction;
mod d_times_and_codecs;
mod e_too_large;
mod f_damage;
mod g_paths;
mod raw;
mod sides;
mod stage;
