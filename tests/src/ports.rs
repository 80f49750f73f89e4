//! Ports for servers that are started again on the same port.
//!
//! A port that the kernel hands out for "any" is one of the range it also uses for outgoing
//! connections, so while a server is down a client of another process may take it. Ports given
//! here lie below that range. Two test processes can still draw the same one; who starts a server
//! notices that it cannot bind and draws again.

use std::{
    fs,
    net::{Ipv4Addr, TcpListener},
    ops::Range,
};

use anyhow::{Result, bail};
use rand::Rng as _;

const LOWEST: u16 = 10_000;
const ATTEMPTS: usize = 1_000;

/// A port on 127.0.0.1 that nobody listens on now.
///
/// # Errors
/// When none is found.
pub fn free() -> Result<u16> {
    let range = below_ephemeral();
    for _ in 0..ATTEMPTS {
        let port = rand::rng().random_range(range.clone());
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("no free port in {range:?} after {ATTEMPTS} attempts")
}

fn below_ephemeral() -> Range<u16> {
    let first_ephemeral = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range")
        .ok()
        .and_then(|text| text.split_whitespace().next()?.parse().ok())
        .filter(|first| *first > LOWEST)
        .unwrap_or(32_768);
    LOWEST..first_ephemeral
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_free_port_can_be_bound_and_is_not_ephemeral() {
        let port = free().expect("some port is free");
        assert!(below_ephemeral().contains(&port));
        let _listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).expect("it is free");
    }
}
