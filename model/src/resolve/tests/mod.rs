//! Tests of resolving, by what they are about.

mod networks;
mod origins;
mod topics;
mod world;
