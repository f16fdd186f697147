//! [`Counters`], and their names for Prometheus.

/// What the network has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Frames that the device delivered.
    pub frames_received: u64,
    /// Their bytes.
    pub bytes_received: u64,
    /// Frames with lengths or headers that make no sense.
    pub malformed: u64,
    /// Frames with a wrong checksum.
    pub bad_checksum: u64,
    /// IP fragments that were dropped: all, or of programs' images those that were not put together.
    pub fragments: u64,
    /// Frames that are neither ARP nor IPv4.
    pub other_protocol: u64,
    /// Frames from addresses that cannot be on the wire.
    pub martian: u64,
    /// TCP segments and ICMP messages to or from broadcast, or to another host.
    pub broadcast: u64,
    /// ICMP errors not sent since there were too many.
    pub icmp_errors_suppressed: u64,
    /// Times that another station claimed this host's address.
    pub address_conflicts: u64,
    /// DHCP leases declined.
    pub leases_declined: u64,
    /// TCP connections in the table now, in any state.
    pub connections: u64,
    /// Of these, how many the application has closed; they wait for their peers.
    pub orphans: u64,
    /// Closed connections forgotten early, to stay within the limits.
    pub orphans_evicted: u64,
    /// TCP connections accepted into a listener's queue.
    pub accepted: u64,
    /// Segments dropped because a listener's queue of open connections was full.
    pub backlog_full: u64,
    /// SYNs answered by a cookie because too many handshakes were going on.
    pub cookies_sent: u64,
    /// Connections opened by a cookie that came back.
    pub cookies_accepted: u64,
    /// SYNs dropped for lack of memory or table space.
    pub refused: u64,
    /// Datagrams dropped because a socket's queue was full.
    pub udp_dropped: u64,
}

/// Whether a figure only grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FigureKind {
    /// It only grows.
    Counter,
    /// It is what is so now.
    Gauge,
}

/// A counter with its name and what it counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figure {
    /// Name of the family.
    pub name: &'static str,
    /// What it counts.
    pub help: &'static str,
    /// Whether it only grows.
    pub kind: FigureKind,
    /// Its value.
    pub value: u64,
}

const fn counter(name: &'static str, help: &'static str, value: u64) -> Figure {
    Figure {
        name,
        help,
        kind: FigureKind::Counter,
        value,
    }
}

const fn gauge(name: &'static str, help: &'static str, value: u64) -> Figure {
    Figure {
        kind: FigureKind::Gauge,
        ..counter(name, help, value)
    }
}

impl Counters {
    /// Every counter. The pattern names each field, so that none is left out.
    pub fn figures(&self) -> [Figure; 20] {
        let Self {
            frames_received,
            bytes_received,
            malformed,
            bad_checksum,
            fragments,
            other_protocol,
            martian,
            broadcast,
            icmp_errors_suppressed,
            address_conflicts,
            leases_declined,
            connections,
            orphans,
            orphans_evicted,
            accepted,
            backlog_full,
            cookies_sent,
            cookies_accepted,
            refused,
            udp_dropped,
        } = *self;
        [
            counter(
                "tare_net_received_frames_total",
                "Frames received.",
                frames_received,
            ),
            counter(
                "tare_net_received_bytes_total",
                "Bytes received.",
                bytes_received,
            ),
            counter(
                "tare_net_malformed_frames_total",
                "Frames with impossible lengths or headers.",
                malformed,
            ),
            counter(
                "tare_net_bad_checksum_frames_total",
                "Frames with a wrong checksum.",
                bad_checksum,
            ),
            counter(
                "tare_net_fragments_total",
                "IP fragments, which are dropped.",
                fragments,
            ),
            counter(
                "tare_net_other_protocol_frames_total",
                "Frames that are neither ARP nor IPv4.",
                other_protocol,
            ),
            counter(
                "tare_net_martian_frames_total",
                "Frames from impossible addresses.",
                martian,
            ),
            counter(
                "tare_net_broadcast_dropped_total",
                "TCP segments and ICMP messages not for this host alone.",
                broadcast,
            ),
            counter(
                "tare_net_icmp_errors_suppressed_total",
                "ICMP errors not sent, beyond the limit.",
                icmp_errors_suppressed,
            ),
            counter(
                "tare_net_address_conflicts_total",
                "Claims of others to this host's address.",
                address_conflicts,
            ),
            counter(
                "tare_net_dhcp_leases_declined_total",
                "DHCP leases declined.",
                leases_declined,
            ),
            gauge(
                "tare_net_tcp_connections",
                "TCP connections in any state.",
                connections,
            ),
            gauge(
                "tare_net_tcp_orphans",
                "TCP connections that the application has closed.",
                orphans,
            ),
            counter(
                "tare_net_tcp_orphans_evicted_total",
                "Closed TCP connections forgotten early.",
                orphans_evicted,
            ),
            counter(
                "tare_net_tcp_accepted_total",
                "TCP connections accepted into a queue.",
                accepted,
            ),
            counter(
                "tare_net_tcp_backlog_full_total",
                "Segments dropped because a queue of open connections was full.",
                backlog_full,
            ),
            counter(
                "tare_net_tcp_cookies_sent_total",
                "SYNs answered by a cookie because a queue was full.",
                cookies_sent,
            ),
            counter(
                "tare_net_tcp_cookies_accepted_total",
                "TCP connections opened by a cookie.",
                cookies_accepted,
            ),
            counter(
                "tare_net_tcp_refused_total",
                "SYNs dropped for lack of memory.",
                refused,
            ),
            counter(
                "tare_net_udp_dropped_total",
                "Datagrams dropped because a socket's queue was full.",
                udp_dropped,
            ),
        ]
    }
}
