//! What the control socket answers; the table is in [`tare_control::api`].

use serde_json::to_vec;
use tare_control::{
    api::{Machine, State, StopRequest},
    config::MachineConfig,
};

use crate::{
    ending::{Ender, Ending},
    failure::chain,
    http::{Method, Request, Response, Routes},
    observe::{Observer, prometheus},
    settings::Adjustable,
};

const JSON: &str = "application/json";
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The control interface of one machine.
pub struct Control {
    /// What the machine was asked to be.
    pub config: MachineConfig,
    /// Its statistics.
    pub observer: Observer,
    /// What can be set.
    pub(crate) adjustable: Adjustable,
    /// Where a stop goes.
    pub ender: Ender,
    /// Whether it was asked to end.
    pub state: State,
}

impl Routes for Control {
    fn answer(&mut self, request: &Request<'_>) -> Response {
        let reads = matches!(request.method, Method::Get | Method::Head);
        let writes = matches!(request.method, Method::Put | Method::Post);
        match request.path {
            "/v1/machine" if reads => json(to_vec(&self.machine())),
            "/v1/stats" if reads => json(to_vec(&self.observer.stats())),
            "/metrics" if reads => {
                let text = prometheus::text(&self.observer.stats());
                Response::ok(PROMETHEUS, text.into_bytes())
            }
            "/v1/settings" if reads => json(to_vec(&self.adjustable.now())),
            "/v1/settings" if request.method == Method::Put => self.set(request.body),
            "/v1/stop" if writes => self.stop(request.body),
            "/v1/machine" | "/v1/stats" | "/metrics" => Response::method_not_allowed("GET, HEAD"),
            "/v1/settings" => Response::method_not_allowed("GET, HEAD, PUT"),
            "/v1/stop" => Response::method_not_allowed("PUT, POST"),
            _ => Response::error(
                404,
                "there are /v1/machine, /v1/stats, /v1/settings, /v1/stop and /metrics",
            ),
        }
    }
}

impl Control {
    fn machine(&self) -> Machine {
        Machine {
            config: self.config.clone(),
            pid: std::process::id(),
            kvm: self.observer.kvm,
            state: self.state,
            uptime_ns: self.observer.uptime_ns(),
        }
    }

    fn set(&self, body: &[u8]) -> Response {
        let change = match serde_json::from_slice(body) {
            Ok(change) => change,
            Err(error) => {
                let sentence = format!("the body is no change of settings: {error}");
                return Response::error(400, &sentence);
            }
        };
        match self.adjustable.change(&change) {
            Ok(settings) => json(to_vec(&settings)),
            Err(error) => Response::error(400, &chain(&error)),
        }
    }

    fn stop(&mut self, body: &[u8]) -> Response {
        let request = match body {
            [] => Ok(StopRequest::default()),
            body => serde_json::from_slice(body),
        };
        match request {
            Ok(StopRequest { how }) => {
                self.state = State::Stopping;
                self.ender.end(Ending::Stopped(how));
                Response::accepted(b"{}".to_vec())
            }
            Err(error) => {
                let sentence = format!("the body is no stop request: {error}");
                Response::error(400, &sentence)
            }
        }
    }
}

fn json(body: Result<Vec<u8>, serde_json::Error>) -> Response {
    match body {
        Ok(body) => Response::ok(JSON, body),
        Err(error) => Response::error(500, &error.to_string()),
    }
}
