//! The text of `stats`: `STAT name value`, as monitoring for memcached reads it.

use alloc::vec::Vec;

use tare_libos::serve::metrics::{COUNTER, GAUGE, single};

use crate::limits::MAX_VALUE;
use crate::number;
use crate::server::{Settings, Traffic, VERSION};
use crate::store::{Clock, OVERHEAD, Store};

/// The server as a whole.
pub(crate) fn general<C: Clock>(
    store: &Store<C>,
    traffic: &Traffic,
    started_s: u32,
    out: &mut Vec<u8>,
) {
    let now_s = store.clock().unix_s();
    figure(out, "", "pid", 1);
    figure(out, "", "uptime", now_s.saturating_sub(started_s).into());
    figure(out, "", "time", now_s.into());
    word(out, "version", VERSION);
    figure(out, "", "pointer_size", u64::from(usize::BITS));
    figures(out, &traffic.named());
    figures(out, &store.counts().named());
    figure(out, "", "limit_maxbytes", store.limit_bytes() as u64);
    figure(out, "", "threads", 1);
    figure(out, "", "bytes", store.used_bytes() as u64);
    figure(out, "", "curr_items", store.len() as u64);
}

/// The figures of [`general`] for Prometheus, under memcached's names.
pub(crate) fn metrics<C: Clock>(store: &Store<C>, traffic: &Traffic, out: &mut Vec<u8>) {
    let gauges = [
        ("limit_maxbytes", store.limit_bytes() as u64),
        ("bytes", store.used_bytes() as u64),
        ("curr_items", store.len() as u64),
    ];
    let (traffic, counts) = (traffic.named(), store.counts().named());
    for (name, value) in gauges.into_iter().chain(traffic).chain(counts) {
        let is_gauge = name.starts_with("curr_") || gauges.iter().any(|(it, _)| *it == name);
        let (kind, end) = if is_gauge {
            (GAUGE, "")
        } else {
            (COUNTER, "_total")
        };
        single(out, &["kv_", name, end].concat(), kind, name, value);
    }
}

/// The one list of items, as memcached shows a class.
pub(crate) fn items<C: Clock>(store: &Store<C>, out: &mut Vec<u8>) {
    if store.is_empty() {
        return;
    }
    let counts = store.counts();
    for (name, value) in [
        ("number", store.len() as u64),
        ("mem_requested", store.used_bytes() as u64),
        ("evicted", counts.evictions),
        ("outofmemory", counts.store_no_memory),
        ("reclaimed", counts.reclaimed),
    ] {
        figure(out, "items:1:", name, value);
    }
}

/// The memory: one class for all lengths.
pub(crate) fn slabs<C: Clock>(store: &Store<C>, out: &mut Vec<u8>) {
    if !store.is_empty() {
        figure(out, "1:", "used_chunks", store.len() as u64);
        figure(out, "1:", "mem_requested", store.used_bytes() as u64);
    }
    figure(out, "", "active_slabs", u64::from(!store.is_empty()));
    figure(out, "", "total_malloced", store.used_bytes() as u64);
}

/// How the server is set up.
pub(crate) fn settings(settings: &Settings, out: &mut Vec<u8>) {
    figure(out, "", "maxbytes", settings.memory_bytes as u64);
    figure(out, "", "maxconns", settings.connections);
    figure(out, "", "tcpport", settings.port.into());
    figure(out, "", "udpport", 0);
    let idle_s = settings.idle.map_or(0, |idle| idle.as_secs());
    figure(out, "", "idle_timeout", idle_s);
    figure(out, "", "num_threads", 1);
    figure(out, "", "item_size_max", MAX_VALUE as u64);
    figure(out, "", "item_overhead", OVERHEAD as u64);
    for (name, value) in [
        ("evictions", "on"),
        ("cas_enabled", "yes"),
        ("flush_enabled", "yes"),
        ("binding_protocol", "ascii"),
        ("auth_enabled_ascii", "no"),
    ] {
        word(out, name, value);
    }
}

fn figures(out: &mut Vec<u8>, named: &[(&str, u64)]) {
    for (name, value) in named {
        figure(out, "", name, *value);
    }
}

fn figure(out: &mut Vec<u8>, class: &str, name: &str, value: u64) {
    for part in ["STAT ", class, name, " "] {
        out.extend_from_slice(part.as_bytes());
    }
    number::push(out, value);
    out.extend_from_slice(b"\r\n");
}

fn word(out: &mut Vec<u8>, name: &str, value: &str) {
    for part in ["STAT ", name, " ", value, "\r\n"] {
        out.extend_from_slice(part.as_bytes());
    }
}
