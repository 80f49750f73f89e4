//! Reading of record batches from one broker, by sessions (KIP-227): the broker remembers which
//! partitions we want and from where, a request names only what changed, and an answer only what
//! has news. Thousands of quiet partitions so cost a request of a few dozen bytes.
//!
//! [`Session`] is a machine without IO: it makes requests and digests answers.

mod answer;
mod request;
mod session;

pub use self::{
    answer::{Aborted, Answer, EpochEnd, Fetched},
    request::Request,
    session::{Position, Session, Settings},
};
