//! The control interface that Tare's long-running programs share; the table of
//! requests and answers is in [`tare_control::api`].

use serde::Serialize;
use tare_control::api::{MachineStatus, SignalRequest, Stop, StopRequest};
use tare_control::sentence::chain;
use tare_control::settings::{Settings, SettingsChange, SettingsError};
use tare_control::stats::Stats;
use tare_host::signal_number::SignalNumber;

use crate::http::{Method, Request, Response};
use crate::observe::prometheus;

const JSON: &str = "application/json";
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A program that answers on its control socket.
pub trait Interface {
    /// Its machine, if it runs one.
    fn machine(&self) -> Option<MachineStatus> {
        None
    }

    /// Its statistics.
    fn stats(&self) -> Stats;

    /// The settings in force.
    fn settings(&self) -> Settings;

    /// Makes a change, all of it or nothing; the settings then in force.
    fn change(&mut self, change: &SettingsChange) -> Result<Settings, SettingsError>;

    /// Ends it, soon.
    fn stop(&mut self, how: Stop);

    /// Sends its guest's program a signal. Whether it runs a program.
    fn send_signal(&mut self, _: SignalNumber) -> bool {
        false
    }
}

/// The answer to a request.
pub fn answer(program: &mut impl Interface, request: &Request<'_>) -> Response {
    let reads = matches!(request.method, Method::Get | Method::Head);
    let writes = matches!(request.method, Method::Put | Method::Post);
    match request.path {
        "/v1/machine" => match program.machine() {
            None => no_such_path(""),
            Some(machine) if reads => json(&machine),
            Some(_) => Response::method_not_allowed("GET, HEAD"),
        },
        "/v1/stats" if reads => json(&program.stats()),
        "/metrics" if reads => {
            let text = prometheus::text(&program.stats());
            Response::ok(PROMETHEUS, text.into_bytes())
        }
        "/v1/settings" if reads => json(&program.settings()),
        "/v1/settings" if request.method == Method::Put => change(program, request.body),
        "/v1/stop" if writes => stop(program, request.body),
        "/v1/signal" if writes => signal(program, request.body),
        "/v1/stats" | "/metrics" => Response::method_not_allowed("GET, HEAD"),
        "/v1/settings" => Response::method_not_allowed("GET, HEAD, PUT"),
        "/v1/stop" | "/v1/signal" => Response::method_not_allowed("PUT, POST"),
        _ if program.machine().is_some() => no_such_path("/v1/machine, "),
        _ => no_such_path(""),
    }
}

fn no_such_path(more: &str) -> Response {
    let sentence =
        format!("there are {more}/v1/stats, /v1/settings, /v1/stop, /v1/signal and /metrics");
    Response::error(404, &sentence)
}

fn change(program: &mut impl Interface, body: &[u8]) -> Response {
    let change = match SettingsChange::from_json(body) {
        Ok(change) => change,
        Err(error) => {
            let sentence = format!("invalid change of settings: {error}");
            return Response::error(400, &sentence);
        }
    };
    match program.change(&change) {
        Ok(settings) => json(&settings),
        Err(error) => Response::error(400, &chain(&error)),
    }
}

fn stop(program: &mut impl Interface, body: &[u8]) -> Response {
    let request = match body {
        [] => Ok(StopRequest::default()),
        body => serde_json::from_slice(body),
    };
    match request {
        Ok(StopRequest { how }) => {
            program.stop(how);
            Response::accepted(b"{}".to_vec())
        }
        Err(error) => {
            let sentence = format!("invalid stop request: {error}");
            Response::error(400, &sentence)
        }
    }
}

fn signal(program: &mut impl Interface, body: &[u8]) -> Response {
    match serde_json::from_slice(body) {
        Ok(SignalRequest { signal }) if program.send_signal(signal) => {
            Response::accepted(b"{}".to_vec())
        }
        Ok(_) => Response::error(400, "only a program in a machine gets signals"),
        Err(error) => {
            let sentence = format!("invalid signal request: {error}");
            Response::error(400, &sentence)
        }
    }
}

fn json(body: &impl Serialize) -> Response {
    match serde_json::to_vec(body) {
        Ok(body) => Response::ok(JSON, body),
        Err(error) => Response::error(500, &error.to_string()),
    }
}
