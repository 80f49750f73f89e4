//! The API as its callers see it: in-process servers on the loopback over a store in memory, with a
//! leadership, a fleet and clusters that the tests set by hand.

mod apply;
mod clusters_and_links;
mod connections;
mod forwarding;
mod http;
mod lists;
mod repeats;
mod reports;
mod rig;
mod subscriptions;
mod transport;
mod watching;
mod workers;
