//! How connections come to be: SYNs, SYN cookies, and calls to connect.

use alloc::boxed::Box;
use core::net::IpAddr;

use smoltcp::time::{Duration, Instant};
use tare_tcp::cookie::Cookies;
use tare_tcp::{Config, FourTuple, Identity};

use super::connection::{Connection, Role, to_tcp};
use super::listener::Listener;
use super::tcp::{Arrival, Opened, Tcp};
use super::via::Via;
use super::{Counters, ListenerId};
use crate::flow::Flow;
use crate::link::Link;
use crate::port::Port;
use crate::waiters::Wake;

/// How long a connection that is over answers old segments. Linux takes 60 s;
/// a SYN that is newer ends it sooner (RFC 6191).
const TIME_WAIT: tare_tcp::time::Duration = tare_tcp::time::Duration::from_secs(10);
/// Largest window and send buffer of a connection, as a share of the pool.
const BUFFER_SHARE: usize = 16;
const BUFFER_MAX: usize = 1 << 20;
/// Cookies are looked for in acknowledgements this long after one was sent.
const COOKIE_LIFETIME: Duration = Duration::from_secs(128);

impl<W: Wake> Tcp<W> {
    /// What a connection over `port` is given.
    pub(super) fn config<L: Link>(&self, port: &Port<L>, remote: IpAddr) -> Config {
        let most = (self.pool.limit() / BUFFER_SHARE).min(BUFFER_MAX) as u32;
        Config {
            mss: port.segment_max(remote),
            together: port.link_properties().together,
            receive_max: most,
            send_max: most,
            time_wait: TIME_WAIT,
            ..Config::default()
        }
    }

    /// A connection to the peer of `flow`; its SYN is not sent yet.
    pub(super) fn connect<L: Link>(
        &self,
        port: &Port<L>,
        flow: Flow,
        via: Via,
        now: Instant,
    ) -> Connection<W> {
        let tuple = tuple(&flow);
        let identity = Identity {
            secret: &self.secret,
            tuple: &tuple,
        };
        let tcp = tare_tcp::Connection::connect(
            self.config(port, flow.remote.ip()),
            identity,
            &self.pool,
            to_tcp(now),
        );
        Connection::new(flow, via, Role::Owned, tcp)
    }

    /// A SYN, or the last part of a handshake with a cookie.
    pub(super) fn open<L: Link>(
        &mut self,
        port: &mut Port<L>,
        via: Via,
        arrival: &Arrival<'_>,
        counters: &mut Counters,
        now: Instant,
    ) -> Opened {
        let remote = arrival.flow.remote.ip();
        let Some(index) = self.listener_for(&arrival.flow) else {
            return Opened::NoListener;
        };
        let Some(listener) = &mut self.listeners[index] else {
            return Opened::NoListener;
        };
        if listener.ready.len() >= listener.backlog {
            counters.backlog_full += 1;
            return Opened::Done;
        }
        let listener_id = ListenerId(index as u32);
        if !arrival.opens() {
            return self.open_by_cookie(port, via, arrival, listener_id, counters, now);
        }
        let is_full = listener.half_open >= listener.backlog;
        if is_full {
            self.send_cookie(port, arrival, counters, now);
            return Opened::Done;
        }
        if !self.make_room(counters) {
            counters.refused += 1;
            return Opened::Done;
        }
        let (tuple, config) = (tuple(&arrival.flow), self.config(port, remote));
        let identity = Identity {
            secret: &self.secret,
            tuple: &tuple,
        };
        let (syn, at) = (&arrival.segment, to_tcp(now));
        let tcp = tare_tcp::Connection::accept(config, identity, syn, &self.pool, at);
        let id = self.insert_opening(arrival, via, listener_id, tcp);
        Opened::Connection(id)
    }

    /// Of several listeners those at an address go before those at any; peers are divided among those
    /// that are alike.
    fn listener_for(&self, flow: &Flow) -> Option<usize> {
        let is_for = |listener: &Option<Listener<W>>| {
            listener
                .as_ref()
                .is_some_and(|l| l.local.takes(&flow.local))
        };
        if !W::of_programs() {
            return self.listeners.iter().position(is_for);
        }
        let numbered = self.listeners.iter().enumerate();
        let rank = |&(index, listener): &(usize, &Option<Listener<W>>)| {
            let local = listener.as_ref().map(|listener| listener.local);
            local.map(|local| local.rank(index as u32, flow.remote, self.division))
        };
        let takers = numbered.filter(|(_, listener)| is_for(listener));
        takers.max_by_key(rank).map(|(index, _)| index)
    }

    fn insert_opening(
        &mut self,
        arrival: &Arrival<'_>,
        via: Via,
        listener: ListenerId,
        tcp: tare_tcp::Connection,
    ) -> u32 {
        let mut connection = Connection::new(arrival.flow, via, Role::Opening(listener), tcp);
        connection.neighbor = Some(arrival.neighbor);
        if let Some(listener) = &mut self.listeners[listener.0 as usize] {
            listener.half_open += 1;
        }
        self.insert(Box::new(connection))
    }

    /// The queue of handshakes is full: answers without keeping anything (RFC 4987).
    fn send_cookie<L: Link>(
        &mut self,
        port: &mut Port<L>,
        arrival: &Arrival<'_>,
        counters: &mut Counters,
        now: Instant,
    ) {
        let remote = arrival.flow.remote.ip();
        counters.cookies_sent += 1;
        self.cookies_until = now + COOKIE_LIFETIME;
        let (tuple, config) = (tuple(&arrival.flow), self.config(port, remote));
        let cookies = Cookies::new(&self.secret, to_tcp(now));
        let answer = cookies.syn_ack(&tuple, &arrival.segment, &config);
        port.send_segment(arrival.neighbor, &arrival.flow, &answer);
    }

    fn open_by_cookie<L: Link>(
        &mut self,
        port: &mut Port<L>,
        via: Via,
        arrival: &Arrival<'_>,
        listener: ListenerId,
        counters: &mut Counters,
        now: Instant,
    ) -> Opened {
        if now >= self.cookies_until {
            return Opened::NoListener;
        }
        let remote = arrival.flow.remote.ip();
        let (tuple, config) = (tuple(&arrival.flow), self.config(port, remote));
        let (segment, at) = (&arrival.segment, to_tcp(now));
        let Some(cookie) = Cookies::new(&self.secret, at).check(&tuple, segment) else {
            return Opened::NoListener;
        };
        if !self.make_room(counters) {
            counters.refused += 1;
            return Opened::Done;
        }
        counters.cookies_accepted += 1;
        let identity = Identity {
            secret: &self.secret,
            tuple: &tuple,
        };
        let pool = &self.pool;
        let tcp = tare_tcp::Connection::from_cookie(config, identity, &cookie, segment, pool, at);
        Opened::Connection(self.insert_opening(arrival, via, listener, tcp))
    }
}

fn tuple(flow: &Flow) -> FourTuple {
    FourTuple {
        local: flow.local,
        remote: flow.remote,
    }
}
