//! All experiments. Each is a module with its own data; machines, load, records,
//! figures and the report page are shared.

use crate::experiment::{Entry, Subject};

pub(crate) mod apps;
pub(crate) mod events;
mod guest_bench;
pub(crate) mod halt_budget;
pub(crate) mod http_bursts;
pub(crate) mod ipi_halt;
pub(crate) mod kv;
mod observer;
mod ping_pong;
pub(crate) mod tailor;
pub(crate) mod tcp;
pub(crate) mod tcp_rr;
#[cfg(test)]
pub(crate) mod testing;
pub(crate) mod vic;
pub(crate) mod vmexit;

/// All experiments.
pub(crate) const ALL: &[Entry] = &[
    Entry {
        name: "http-bursts",
        about: "a web server under bursts and breaks: CPU, exits, latency of three ways to wait",
        subject: Subject::Image,
        make: |depth, image| Box::new(http_bursts::HttpBursts::new(depth, image)),
    },
    Entry {
        name: "ipi-halt",
        about: "an interrupt to a halted CPU: cycles with and without halt polling",
        subject: Subject::Image,
        make: |depth, image| Box::new(ipi_halt::IpiHalt::new(depth, image)),
    },
    Entry {
        name: "halt-budget",
        about: "ways for a halted CPU to wait: CPU against wake-up time, and the best possible",
        subject: Subject::Image,
        make: |depth, image| Box::new(halt_budget::HaltBudget::new(depth, image)),
    },
    Entry {
        name: "events",
        about: "two threads that signal each other: round trips, halts and interrupts a message",
        subject: Subject::Image,
        make: |depth, image| Box::new(events::planned(depth, image)),
    },
    Entry {
        name: "tcp-rr",
        about: "one byte each way over the loopback, on one and two CPUs, guest and host",
        subject: Subject::Image,
        make: |depth, image| Box::new(tcp_rr::planned(depth, image)),
    },
    Entry {
        name: "tcp",
        about: "our TCP beside Linux's on the same wire, under fifteen impairments",
        subject: Subject::Own,
        make: |depth, _| Box::new(tcp::Tcp::new(depth)),
    },
    Entry {
        name: "vic",
        about: "a disk's interrupts: off, coalesced by depth, QEMU's own device",
        subject: Subject::Image,
        make: |depth, image| Box::new(vic::Vic::new(depth, image)),
    },
    Entry {
        name: "vmexit",
        about: "the cost of each kind of exit: cpuid, ports, memory, timers, interrupts, CR3",
        subject: Subject::Image,
        make: |depth, image| Box::new(vmexit::Vmexit::new(depth, image)),
    },
    Entry {
        name: "observer",
        about: "tare why's own cost: one machine, many, and storms; what the guests lose",
        subject: Subject::Image,
        make: |depth, image| Box::new(observer::Observing::new(depth, image)),
    },
    Entry {
        name: "kv",
        about: "a cache: Tare's appliance and memcached in a container, rate and latency",
        subject: Subject::Image,
        make: |depth, image| Box::new(kv::Kv::new(depth, image)),
    },
    Entry {
        name: "apps",
        about: "memcached, redis, nginx: process, container, Tare, Linux guest; what weighs least",
        subject: Subject::Own,
        make: |depth, _| Box::new(apps::Apps::new(depth)),
    },
    Entry {
        name: "counts",
        about: "instructions, exits and interrupts of a request, and sizes of images",
        subject: Subject::Image,
        make: |depth, image| Box::new(http_bursts::Counts::new(depth, image)),
    },
    Entry {
        name: "tailor",
        about: "a kernel cut to one application against Debian's: instructions, sizes, answers",
        subject: Subject::App,
        make: |depth, app| Box::new(tailor::Tailor::new(depth, app)),
    },
];

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::request::Depth;

    #[test]
    fn every_report_has_its_text_and_no_value_is_left_open() {
        for entry in ALL {
            let report = (entry.make)(Depth::Quick, None).report(&[]);
            let lists = [&report.answer, &report.method, &report.limitations];
            let sections = report.sections.iter().flat_map(|it| [&it.title, &it.lead]);
            let mut texts = vec![&report.title, &report.question];
            texts.extend(lists.into_iter().flatten().chain(sections));
            for text in texts {
                let about = format!("{}: {text}", entry.name);
                // A value may be JSON, whose braces are before quotes.
                let is_open = text
                    .match_indices('{')
                    .any(|(at, _)| !text[at + 1..].starts_with(['"', '}']));
                assert!(!text.is_empty() && !is_open, "{about}");
            }
            assert!(!report.method.is_empty(), "{}", entry.name);
        }
    }

    #[test]
    fn forms_that_decide_goals_repeat_often_enough_for_an_interval() {
        for entry in ALL {
            for depth in [Depth::Standard, Depth::Full] {
                let experiment = (entry.make)(depth, None);
                if experiment.goals().is_empty() {
                    continue;
                }
                let plan = experiment.plan();
                for name in ["rounds", "turns", "cycles", "starts", "batches", "boots"] {
                    let times = plan.get(name).and_then(Value::as_u64);
                    let about = format!("{} {}: {name}", entry.name, depth.name());
                    assert!(times.is_none_or(|times| times >= 6), "{about}: {times:?}");
                }
            }
        }
    }
}
