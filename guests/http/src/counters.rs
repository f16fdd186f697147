//! What the server counts, and its text for Prometheus.

use alloc::vec::Vec;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use tare_libos::serve::metrics::{COUNTER, GAUGE, family, sample, single};

use crate::status::Status;

/// Counters of one server; each is a number on its own.
#[derive(Debug, Default)]
pub struct Counters {
    responses: [AtomicU64; Status::ALL.len()],
    /// Connections that were accepted, refused ones among them.
    pub accepted: Count,
    /// Connections that have ended, refused ones among them.
    pub ended: Count,
    /// Connections answered with 503 since too many were open.
    pub refused: Count,
    /// Connections closed after a quiet time between requests.
    pub idle_timeouts: Count,
    /// Requests that did not arrive in time.
    pub request_timeouts: Count,
    /// Responses that a client did not take in time.
    pub write_timeouts: Count,
    /// Connections that broke.
    pub resets: Count,
    /// Bytes of request heads and bodies.
    pub received_bytes: Count,
    /// Bytes of response heads and bodies.
    pub sent_bytes: Count,
    /// Lines of the access log.
    pub logged: Count,
    /// Lines that the access log had no room for.
    pub log_dropped: Count,
    /// Roots that have replaced the one before.
    pub reloads: Count,
    /// New roots that were refused.
    pub reloads_refused: Count,
}

/// A counter that only grows.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// Adds one.
    pub fn one(&self) {
        self.add(1);
    }

    /// Adds `n`.
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Relaxed);
    }

    /// The count so far.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

impl Counters {
    /// Counts a response.
    pub fn response(&self, status: Status) {
        self.responses[status.index()].fetch_add(1, Relaxed);
    }

    /// Responses of that status so far.
    pub fn responses(&self, status: Status) -> u64 {
        self.responses[status.index()].load(Relaxed)
    }

    /// Connections that are open now.
    pub fn open(&self) -> u64 {
        self.accepted.get().saturating_sub(self.ended.get())
    }

    /// Appends every counter in Prometheus' text format 0.0.4.
    pub fn expose(&self, out: &mut Vec<u8>) {
        family(
            out,
            "http_requests_total",
            COUNTER,
            "Requests answered, by status code.",
        );
        for status in Status::ALL {
            let count = self.responses(*status);
            if count > 0 || *status == Status::Ok {
                sample(
                    out,
                    "http_requests_total",
                    Some(("code", status.code().into())),
                    count,
                );
            }
        }
        single(
            out,
            "http_connections_open",
            GAUGE,
            "Connections open now.",
            self.open(),
        );
        for (name, help, count) in [
            (
                "http_connections_total",
                "Connections accepted.",
                &self.accepted,
            ),
            (
                "http_connections_refused_total",
                "Connections beyond the limit.",
                &self.refused,
            ),
            (
                "http_connections_reset_total",
                "Connections that broke.",
                &self.resets,
            ),
            (
                "http_idle_timeouts_total",
                "Connections closed after a quiet time.",
                &self.idle_timeouts,
            ),
            (
                "http_request_timeouts_total",
                "Requests that arrived too slowly.",
                &self.request_timeouts,
            ),
            (
                "http_write_timeouts_total",
                "Responses taken too slowly.",
                &self.write_timeouts,
            ),
            (
                "http_received_bytes_total",
                "Bytes of requests.",
                &self.received_bytes,
            ),
            (
                "http_sent_bytes_total",
                "Bytes of responses.",
                &self.sent_bytes,
            ),
            (
                "http_access_log_lines_total",
                "Lines of the access log.",
                &self.logged,
            ),
            (
                "http_access_log_dropped_total",
                "Lines without room in the access log.",
                &self.log_dropped,
            ),
            (
                "http_reloads_total",
                "Roots that replaced the one before.",
                &self.reloads,
            ),
            (
                "http_reloads_refused_total",
                "New roots that were refused.",
                &self.reloads_refused,
            ),
        ] {
            single(out, name, COUNTER, help, count.get());
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::String;

    use super::*;

    #[test]
    fn every_count_appears_in_the_text() {
        let counters = Counters::default();
        for status in Status::ALL {
            counters.response(*status);
        }
        let counts = [
            &counters.accepted,
            &counters.ended,
            &counters.refused,
            &counters.idle_timeouts,
            &counters.request_timeouts,
            &counters.write_timeouts,
            &counters.resets,
            &counters.received_bytes,
            &counters.sent_bytes,
            &counters.logged,
            &counters.log_dropped,
            &counters.reloads,
            &counters.reloads_refused,
        ];
        for (at, count) in counts.into_iter().enumerate() {
            count.add(1000 - 10 * at as u64);
        }
        let mut out = Vec::new();
        counters.expose(&mut out);
        let text = String::from_utf8(out).unwrap();
        for status in Status::ALL {
            let line = format!("http_requests_total{{code=\"{}\"}} 1\n", status.code());
            assert!(text.contains(&line), "{line}");
        }
        assert!(text.contains("http_connections_open 10\n"));
        for value in [
            "1000", "980", "970", "960", "950", "940", "930", "920", "910", "900", "890", "880",
        ] {
            assert!(text.contains(&format!(" {value}\n")), "{value}");
        }
    }

    #[test]
    fn every_line_is_well_formed() {
        let mut out = Vec::new();
        Counters::default().expose(&mut out);
        for line in String::from_utf8(out).unwrap().lines() {
            let words: Vec<&str> = line.split(' ').collect();
            match words[0] {
                "#" => assert!(matches!(words[1], "HELP" | "TYPE") && words.len() > 3),
                _ => assert!(
                    words.len() == 2 && words[1].parse::<u64>().is_ok(),
                    "{line}"
                ),
            }
        }
    }
}
