//! The reconcile loop with everything around it: real controllers on the in-memory store, fake Kafka
//! clusters, workers that keep the protocol of claims. Time is virtual, so long waits cost nothing.

mod assignment;
mod continuity;
mod renewal;
mod scale;
mod support;
mod topics;
mod wired;
