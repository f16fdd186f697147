//! Peers that are silent.

use std::io::Write as _;
use std::net::TcpStream;
use std::process::Stdio;

use crate::support::compile::c;
use crate::support::{TestDir, end, eventually, free_port};
use crate::{can_run, net};

#[test]
fn a_silent_peer_is_probed_as_the_program_says() {
    if !can_run() {
        return;
    }
    let place = TestDir::new();
    let Some(program) = c(&place, "probes.c", &["-static"]) else {
        return;
    };
    let port = free_port();
    let publish = format!("{port}:80");
    let network = "user,outbound=off";
    let args = [
        "run", &program, "--name", "silent", "-p", &publish, "--net", network,
    ];
    let mut tare = place.tare(&args);
    let child = tare.stdin(Stdio::null()).spawn().unwrap();
    let mut client = None;
    eventually("it takes the connection", || {
        client = TcpStream::connect(("127.0.0.1", port)).ok();
        client.is_some()
    });
    client.as_ref().unwrap().write_all(b"x").unwrap();
    eventually("it has read the byte", || {
        place.run(&["logs", "silent"]).out.contains("silent")
    });
    // Longer than acknowledgements are delayed, within which the last one may go.
    std::thread::sleep(std::time::Duration::from_millis(500));
    let [sent, received] = ["tx_frames", "rx_frames"];
    let before = (net(&place, "silent", sent), net(&place, "silent", received));
    eventually("it probes, and is answered", || {
        let now = (net(&place, "silent", sent), net(&place, "silent", received));
        now.0 >= before.0 + 3 && now.1 >= before.1 + 3
    });
    drop(client);
    // The end, and no peer that was given up.
    end(child).expect(0, "");
}
