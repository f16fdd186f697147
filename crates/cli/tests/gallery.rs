//! The programs of `examples/`, built as their pages say and tried in machines. SKIP without
//! /dev/kvm, passt, or what builds one.
#![allow(clippy::unwrap_used)]

mod support;

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use support::needs::{built, kvm, passt, skip};
use support::{IO_TIMEOUT, TestDir, end, eventually, free_port, get, installed, served};

fn example(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../examples")
        .join(name)
}

/// Whether an example for this image can run here, built by `tool`.
fn can_run(image: &str, tool: &str) -> bool {
    if !(kvm() && passt() && built(image).is_some()) {
        return false;
    }
    let is_there = installed(tool);
    if !is_there {
        tare_vmtest::lacks(format!("{tool} is not installed"));
    }
    is_there
}

/// Starts `tare run` with a published port.
fn start(place: &TestDir, args: &[&str], guest_port: u16) -> (Child, u16) {
    let port = free_port();
    let publish = format!("{port}:{guest_port}");
    let all = [&["run", "--name", "example", "-p", &publish][..], args].concat();
    (place.tare(&all).spawn().unwrap(), port)
}

fn stop(place: &TestDir, child: Child) -> support::CommandOutput {
    let stopped = place.run(&["stop", "example"]);
    stopped.expect(0, "");
    let ended = end(child);
    assert!(place.run_directories().is_empty(), "{ended:#?}");
    ended
}

/// What a server answers to `text`, until it closes or has answered `expected`.
fn say(port: u16, text: &str, expected: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(IO_TIMEOUT))?;
    stream.write_all(text.as_bytes())?;
    let (mut all, mut some) = (Vec::new(), [0; 4096]);
    while !String::from_utf8_lossy(&all).contains(expected) {
        match stream.read(&mut some)? {
            0 => break,
            count => all.extend_from_slice(&some[..count]),
        }
    }
    Ok(String::from_utf8_lossy(&all).into_owned())
}

#[test]
fn the_go_service_keeps_notes() {
    if !can_run("linux", "go") {
        return;
    }
    let place = TestDir::new();
    let program = place.path().join("notes");
    let mut go = Command::new("go");
    go.env("CGO_ENABLED", "0")
        .current_dir(example("go-service"))
        .args(["build", "-o"])
        .arg(&program)
        .arg(".");
    assert!(go.status().unwrap().success());
    let (child, port) = start(&place, &[program.to_str().unwrap()], 80);
    eventually("it answers", || {
        get(port, "/notes").is_ok_and(|answer| answer.contains("[]"))
    });
    let body = "{\"text\": \"milk\"}";
    let post = format!(
        "POST /notes HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let created = say(port, &post, "milk").unwrap();
    assert!(created.contains("201 Created"), "{created}");
    let one = served(port, "/notes/1");
    assert!(one.contains("{\"number\":1,\"text\":\"milk\"}"), "{one}");
    assert!(served(port, "/notes/2").contains("404"));
    stop(&place, child).expect(0, "1 notes");
    weighed(&place, &program);
}

/// The service is measured in a machine and as a process, by the data file of its page.
fn weighed(place: &TestDir, program: &Path) {
    let root = place.path().join("root");
    fs::create_dir(&root).unwrap();
    fs::copy(program, root.join("notes")).unwrap();
    fs::copy(
        example("go-service").join("notes.toml"),
        place.path().join("notes.toml"),
    )
    .unwrap();
    let out = place.path().join("out");
    let file = place.path().join("notes.toml");
    let [file, out] = [&file, &out].map(|path| path.to_str().unwrap());
    let args = [
        "weigh",
        "apps",
        "--app",
        file,
        "--quick",
        "--packaging",
        "tare",
        "--packaging",
        "process",
        "--out",
        out,
    ];
    place.run(&args).expect(0, "app_per_s.notes_list.tare");
    assert!(place.run_directories().is_empty());
}

/// A program in Rust, built as its page says but not optimized; None where its crates are not
/// there.
fn in_rust(name: &str) -> Option<PathBuf> {
    let target = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let cargo = |args: &[&str]| {
        let mut cargo = Command::new("cargo");
        cargo
            .args(args)
            .args(["--offline", "--locked"])
            .current_dir(example(name))
            // These would take the place of those of the example.
            .env_remove("RUSTFLAGS")
            .env_remove("CARGO_BUILD_TARGET")
            .env("CARGO_TARGET_DIR", &target)
            .env("CARGO_PROFILE_DEV_DEBUG", "0");
        cargo.output().unwrap()
    };
    if !cargo(&["tree", "--edges", "normal,build"]).status.success() {
        skip(format!(
            "the crates of examples/{name} are not there: cargo fetch in it"
        ));
        return None;
    }
    let built = cargo(&["build"]);
    assert!(built.status.success(), "{built:?}");
    Some(target.join("x86_64-unknown-linux-gnu/debug").join(name))
}

#[test]
fn the_rest_service_keeps_notes_in_sqlite() {
    if !can_run("linux", "cargo") {
        return;
    }
    let Some(program) = in_rust("rest") else {
        return;
    };
    let place = TestDir::new();
    let (child, port) = start(&place, &[program.to_str().unwrap()], 80);
    eventually("it answers", || {
        get(port, "/notes").is_ok_and(|answer| answer.contains("[]"))
    });
    let ask = |method: &str, path: &str, body: &str, expected: &str| {
        let text = format!(
            "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let answer = say(port, &text, expected).unwrap();
        assert!(answer.contains(expected), "{method} {path}: {answer}");
        answer
    };
    let milk = ask("POST", "/notes", "{\"text\": \"milk\"}", "milk");
    assert!(milk.contains("201 Created"), "{milk}");
    ask("POST", "/notes", "{\"text\": \"eggs\"}", "\"number\":2");
    ask("PUT", "/notes/1", "{\"text\": \"bread\"}", "bread");
    ask("DELETE", "/notes/2", "", "204");
    ask("GET", "/notes", "", "[{\"number\":1,\"text\":\"bread\"}]");
    ask("GET", "/notes/2", "", "404");
    ask("POST", "/notes", "{\"text\": 1}", "422");
    ask("POST", "/notes", "{", "400");
    stop(&place, child).expect(0, "1 notes");
}

#[test]
fn the_tls_server_answers_on_all_cores() {
    /// Requests, each on a connection with its own handshake.
    const ROUNDS: usize = 8;

    if !can_run("linux", "cargo") {
        return;
    }
    if !installed("curl") {
        tare_vmtest::lacks("curl is not installed");
        return;
    }
    let Some(program) = in_rust("tls") else {
        return;
    };
    let place = TestDir::new();
    let args = [program.to_str().unwrap(), "--cpus", "2"];
    let (child, port) = start(&place, &args, 443);
    let ask = move || {
        let url = format!("https://localhost:{port}/path");
        // The certificate is the server's own.
        let asked = Command::new("curl")
            .args(["--insecure", "--silent", "--max-time", "10", &url])
            .output();
        asked.is_ok_and(|it| it.stdout == b"hello over TLS: /path\n")
    };
    eventually("it answers", ask);
    let together: Vec<_> = (0..ROUNDS).map(|_| std::thread::spawn(ask)).collect();
    assert!(together.into_iter().all(|asked| asked.join().unwrap()));
    // What is not TLS ends its connection alone.
    let refused = say(port, "GET / HTTP/1.1\r\n\r\n", "no such answer");
    assert!(refused.is_err() || refused.is_ok_and(|it| !it.contains("hello")));
    assert!(ask());
    let ended = stop(&place, child);
    ended.expect(0, "2 threads");
    assert!(ended.out.contains(" answers"), "{ended:#?}");
}

#[test]
fn the_job_ends_with_its_own_status() {
    if !can_run("linux", "rustc") {
        return;
    }
    let place = TestDir::new();
    let program = place.path().join("job");
    let built = Command::new("rustc")
        .args(["-O", "-C", "target-feature=+crt-static", "-o"])
        .arg(&program)
        .arg(example("job/job.rs"))
        .output()
        .unwrap();
    if !built.status.success() {
        // Without the C library's archives, for example.
        let said = String::from_utf8_lossy(&built.stderr);
        skip(format!("rustc cannot link a static program: {said}"));
        return;
    }
    let root = example("job/data");
    let run = |args: &[&str]| {
        let all = ["run", program.to_str().unwrap(), "--net", "none", "--root"];
        let root = [root.to_str().unwrap(), "--"];
        place.run(&[&all[..], &root, args].concat())
    };
    run(&["/amounts.csv"]).expect(0, "{\"rows\": 3, \"total\": 405}");
    run(&["/missing.csv"]).expect(3, "/missing.csv: No such file");
    run(&[]).expect(2, "usage: job FILE");
}

#[test]
fn the_static_site_is_served() {
    if !(kvm() && passt() && built("http").is_some()) {
        return;
    }
    let place = TestDir::new();
    let site = example("static-site/site");
    let (child, port) = start(&place, &["http", "--root", site.to_str().unwrap()], 80);
    eventually("it answers", || {
        get(port, "/").is_ok_and(|page| page.contains("<h1>A static site</h1>"))
    });
    let style = served(port, "/style.css");
    assert!(style.contains("text/css"), "{style}");
    stop(&place, child);
}

#[test]
fn the_cache_keeps_values() {
    if !can_run("linux", "memcached") {
        return;
    }
    let place = TestDir::new();
    let root = place.path().join("root");
    let made = Command::new(example("cache/root.sh")).arg(&root).status();
    assert!(made.unwrap().success());
    assert!(fs::metadata(root.join("bin/memcached")).is_ok());
    let args = [
        "--root",
        root.to_str().unwrap(),
        "--memory",
        "128M",
        "--",
        "/bin/memcached",
        "-u",
        "root",
        "-m",
        "64",
    ];
    let (child, port) = start(&place, &args, 11211);
    eventually("it answers", || {
        say(port, "version\r\n", "VERSION").is_ok_and(|answer| answer.contains("VERSION"))
    });
    let answer = say(port, "set key 0 0 5\r\nvalue\r\nget key\r\n", "END").unwrap();
    assert!(
        answer.contains("STORED\r\nVALUE key 0 5\r\nvalue\r\nEND"),
        "{answer}"
    );
    stop(&place, child);
}
