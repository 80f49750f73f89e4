//! Connections to the gRPC port: how many, how silent, how dead.

use std::{net::SocketAddr, time::Duration};

use kreplicator_controller::api::Limits;
use kreplicator_proto::v1;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::{sleep, timeout},
};
use tonic::Status;

use crate::rig::{Controller, LIMIT, Rig};

/// What every HTTP/2 client begins with (RFC 9113, section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// A SETTINGS frame without a setting (section 6.5).
const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];

async fn leader_with(limits: Limits) -> (Rig, Controller) {
    let mut rig = Rig::new();
    rig.limits = limits;
    let leader = rig.controller("c1").await;
    rig.elect(&leader).await;
    (rig, leader)
}

/// A call on a connection of its own.
async fn call(leader: &Controller) -> Result<(), Status> {
    let request = v1::GetStatusRequest {};
    let answer = timeout(LIMIT, leader.status().get_status(request)).await;
    answer.expect("answered or refused in time").map(drop)
}

async fn connect(address: SocketAddr) -> TcpStream {
    TcpStream::connect(address).await.expect("it listens")
}

/// A client that has said hello and was heard.
async fn greeted(address: SocketAddr) -> TcpStream {
    let mut stream = connect(address).await;
    stream.write_all(PREFACE).await.expect("open");
    stream.write_all(SETTINGS).await.expect("open");
    let mut header = [0; 9];
    let read = timeout(LIMIT, stream.read_exact(&mut header)).await;
    read.expect("in time").expect("the settings of the server");
    stream
}

/// Waits until the other side closes the connection, and answers nothing meanwhile.
async fn closed(stream: &mut TcpStream) {
    let mut rest = Vec::new();
    let end = timeout(LIMIT, stream.read_to_end(&mut rest)).await;
    // Closed or reset, with or without a word: it is gone.
    drop(end.expect("closed in time"));
}

#[tokio::test]
async fn connections_that_say_nothing_keep_nobody_out() {
    let limits = Limits {
        connections: 16,
        preface_timeout: 10 * LIMIT,
        ..Limits::default()
    };
    let (_rig, leader) = leader_with(limits).await;
    let mut idle = Vec::new();
    for _ in 0..100 {
        idle.push(connect(leader.address).await);
        // Not the whole preface: it might be a client that is slow.
        let begun = &PREFACE[..PREFACE.len() - 1];
        idle.last_mut()
            .expect("just added")
            .write_all(begun)
            .await
            .expect("open");
    }
    call(&leader).await.expect("answered");
    for stream in &mut idle[..100 - 16] {
        closed(stream).await;
    }
}

#[tokio::test]
async fn a_client_that_does_not_come_to_the_point_is_cut_off() {
    let limits = Limits {
        preface_timeout: Duration::from_secs(1),
        ..Limits::default()
    };
    let (_rig, leader) = leader_with(limits).await;
    let mut silent = connect(leader.address).await;
    let mut slow = connect(leader.address).await;
    // A byte at a time would take 12 s.
    let dripping = async {
        for byte in PREFACE {
            if slow.write_all(&[*byte]).await.is_err() {
                return;
            }
            sleep(Duration::from_millis(500)).await;
        }
        panic!("nobody minded");
    };
    timeout(Duration::from_secs(8), dripping)
        .await
        .expect("cut off in time");
    closed(&mut silent).await;
    call(&leader).await.expect("answered");
}

#[tokio::test]
async fn a_full_port_refuses_newcomers_and_serves_those_it_has() {
    let limits = Limits {
        connections: 2,
        ..Limits::default()
    };
    let (_rig, leader) = leader_with(limits).await;
    let (mut first, mut second) = (leader.status(), leader.clusters());
    let status = || v1::GetStatusRequest {};
    first.get_status(status()).await.expect("answered");
    second
        .list_clusters(v1::ListRequest::default())
        .await
        .expect("answered");
    call(&leader).await.expect_err("the port is full");
    closed(&mut connect(leader.address).await).await;
    first.get_status(status()).await.expect("still here");

    drop(second);
    let freed = async {
        while call(&leader).await.is_err() {
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(LIMIT, freed).await.expect("a place is free");
}

#[tokio::test]
async fn a_client_that_is_gone_gives_its_place_back() {
    let limits = Limits {
        connections: 1,
        ping_every: Duration::from_millis(700),
        ping_timeout: Duration::from_millis(700),
        ..Limits::default()
    };
    let (_rig, leader) = leader_with(limits).await;
    let mut gone = greeted(leader.address).await;
    closed(&mut connect(leader.address).await).await;
    // It answers no ping.
    closed(&mut gone).await;
    let freed = async {
        while call(&leader).await.is_err() {
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(LIMIT, freed).await.expect("a place is free");
}

#[tokio::test]
async fn a_client_without_calls_that_answers_pings_is_kept() {
    let limits = Limits {
        connections: 1,
        ping_every: Duration::from_millis(300),
        ping_timeout: Duration::from_millis(700),
        ..Limits::default()
    };
    let (_rig, leader) = leader_with(limits).await;
    let mut status = leader.status();
    let ask = || v1::GetStatusRequest {};
    status.get_status(ask()).await.expect("answered");
    sleep(Duration::from_secs(2)).await;
    // The port has one place: a new connection would be refused while the old one is there.
    closed(&mut connect(leader.address).await).await;
    status.get_status(ask()).await.expect("answered");
}
