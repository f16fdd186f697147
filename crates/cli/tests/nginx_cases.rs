//! The HTTP cases of the appliance `http`, sent to Debian's nginx as a process of this host and in a
//! machine: what nginx makes of a request does not depend on where it runs. SKIP without /dev/kvm,
//! Debian's packages or the image `linux`.
#![allow(clippy::unwrap_used)]

#[path = "../../../guests/http/tests/support/cases.rs"]
#[allow(dead_code)]
mod cases;
mod support;

use std::fs::{self, File};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use cases::{Case, GROUPS, cases};
use support::needs::{built, kvm};
use support::packages::Packages;
use support::suites::at_once;
use support::{TestDir, end, eventually, free_port, get};

/// The packages of nginx and all of its libraries.
const PACKAGES: [&str; 6] = [
    "nginx",
    "libc6",
    "libcrypt1",
    "libpcre2-8-0",
    "libssl3",
    "zlib1g",
];
const PROGRAM: &str = "usr/sbin/nginx";
/// Cases at a time.
const AT_A_TIME: usize = 16;
/// Longest wait for a part of an answer: far beyond the time after which nginx closes.
const LIMIT: Duration = Duration::from_secs(120);
/// The second request on each connection, after which the server closes it.
const NEXT: &str = "GET /ten.txt HTTP/1.1\r\nHost: next\r\nConnection: close\r\n\r\n";
/// What a redirection or a file's time would make differ is off. A request that does not come to its
/// end has three seconds.
const CONFIGURATION: &str = "
user root;
daemon off;
master_process off;
pid nginx.pid;
events { worker_connections 256; }
http {
    access_log off;
    etag off;
    port_in_redirect off;
    client_header_timeout 3s;
    client_body_timeout 3s;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    server { listen PORT; root site; index index.html; }
}
";

/// A root with nginx, its configuration and the files that the cases ask for.
fn root(place: &TestDir, nginx: &Packages, port: u16) -> PathBuf {
    let root = place.path().join("root");
    nginx.copy(PROGRAM, &root);
    for (file, text) in [
        (
            "nginx.conf",
            CONFIGURATION.replace("PORT", &port.to_string()),
        ),
        ("site/index.html", "<p>root</p>".to_owned()),
        ("site/ten.txt", "0123456789".to_owned()),
        ("site/docs/a.txt", "a".to_owned()),
        ("etc/passwd", "root:x:0:0:root:/:/bin/false\n".to_owned()),
        ("etc/group", "root:x:0:\n".to_owned()),
    ] {
        let path = root.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    root
}

/// nginx as a process, which ends with this.
struct Process(Child);

impl Process {
    fn start(nginx: &Packages, root: &Path, log: File) -> Self {
        let mut command = nginx.command(PROGRAM);
        command
            .args(["-e", "stderr", "-c", "nginx.conf", "-p"])
            .arg(root)
            .stdin(Stdio::null())
            .stderr(log);
        Self(command.spawn().unwrap())
    }
}

/// Waits until the server of `child`, which writes to `log`, answers at `port`.
fn wait_for(child: &mut Child, port: u16, log: &Path) {
    eventually(&format!("what writes {} answers", log.display()), || {
        if let Some(status) = child.try_wait().unwrap() {
            panic!("{status}: {}", fs::read_to_string(log).unwrap());
        }
        get(port, "/").is_ok_and(|page| page.contains("<p>root</p>"))
    });
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// All that a server says to a case and the request behind it, until it closes.
fn exchange(port: u16, case: &Case) -> Vec<u8> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let bytes = [&case.bytes, NEXT.as_bytes()].concat();
    let mut sender = stream.try_clone().unwrap();
    // A server that closes before it has read all ends the sending.
    let sending = thread::spawn(move || sender.write_all(&bytes));
    let mut answers = Vec::new();
    let mut part = [0; 4096];
    loop {
        match stream.read(&mut part) {
            Ok(0) => break,
            Ok(count) => answers.extend_from_slice(&part[..count]),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
            Err(error) => panic!("{}: {error}", case.name),
        }
    }
    let _ = stream.shutdown(Shutdown::Both);
    let _ = sending.join().unwrap();
    answers
}

/// What is the same at any time.
fn lasting(answers: &[u8]) -> String {
    let text = String::from_utf8_lossy(answers);
    let lines = text.split_inclusive('\n');
    let lasts = |line: &&str| !line.starts_with("Date: ") && !line.starts_with("Last-Modified: ");
    lines.filter(lasts).collect()
}

/// The statuses of answers: two where the connection outlived the first.
fn statuses(answers: &str) -> Vec<&str> {
    let heads = answers
        .lines()
        .filter_map(|line| line.strip_prefix("HTTP/1.1 "));
    heads.filter_map(|line| line.split(' ').next()).collect()
}

#[test]
fn nginx_answers_every_http_case_in_a_machine_as_on_this_host() {
    if !kvm() || built("linux").is_none() {
        return;
    }
    let Some(nginx) = Packages::get("nginx", &PACKAGES) else {
        return;
    };
    let place = TestDir::new();
    let [here, there] = [(); 2].map(|()| free_port());
    let root = root(&place, &nginx, here);
    let publish = format!("{there}:{here}");
    let args = [
        "run",
        "--name",
        "nginx",
        "-p",
        &publish,
        "--root",
        root.to_str().unwrap(),
        "--",
        "/usr/sbin/nginx",
        "-e",
        "stderr",
        "-c",
        "nginx.conf",
        "-p",
        "/",
    ];
    let logs = ["process.log", "machine.log"].map(|name| place.path().join(name));
    let [process_log, machine_log] = logs.each_ref().map(|log| File::create(log).unwrap());
    let mut machine = place.tare(&args);
    let machine = machine.stdout(Stdio::null()).stderr(machine_log);
    let mut machine = machine.spawn().unwrap();
    let mut process = Process::start(&nginx, &root, process_log);
    wait_for(&mut process.0, here, &logs[0]);
    wait_for(&mut machine, there, &logs[1]);
    let all: Vec<Case> = GROUPS.into_iter().flat_map(cases).collect();
    let outcome = Mutex::new(([0; 2], Vec::new()));
    at_once(&all, AT_A_TIME, |case| {
        let [here, there] = [here, there].map(|port| lasting(&exchange(port, case)));
        let mut outcome = outcome.lock().unwrap();
        let is_kept = statuses(&here).len() > 1;
        outcome.0[usize::from(is_kept)] += 1;
        if here != there {
            outcome
                .1
                .push(format!("{}: {here:?} here, {there:?} there", case.name));
        }
    });
    place.run(&["stop", "nginx"]).expect(0, "");
    end(machine);
    let ([closed, kept], differ) = outcome.into_inner().unwrap();
    println!(
        "{} cases: {kept} keep the connection, {closed} close it",
        all.len()
    );
    assert!(differ.is_empty(), "{}", differ.join("\n"));
    assert!(kept > 20 && closed > 50, "{kept} kept, {closed} closed");
}
