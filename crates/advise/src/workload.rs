//! Workloads whose kind is known beforehand: the second talk's and the lab's.

use tare_policy::placement::Class;

/// A workload by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workload {
    /// As the lab calls it.
    pub name: &'static str,
    /// What it spends its time with.
    pub class: Class,
    /// Who says so.
    pub source: &'static str,
}

const ALL: &[Workload] = &[
    of("ffmpeg", Class::CpuBound, "talk 2, slide 13"),
    of("mpi-search", Class::CpuBound, "talk 2, slide 15"),
    of("mpi-prime", Class::CpuBound, "talk 2, slide 15"),
    of("wordpress", Class::IoBound, "talk 2, slide 17"),
    of("cassandra", Class::UltraIoBound, "talk 2, slides 20 and 30"),
    of(
        "redis",
        Class::IoBound,
        "a network server, as the talk's WordPress",
    ),
    of(
        "memcached",
        Class::IoBound,
        "a network server, as the talk's WordPress",
    ),
    of(
        "postgresql",
        Class::UltraIoBound,
        "a database, as the talk's Cassandra",
    ),
    of("fio", Class::UltraIoBound, "input and output alone"),
];

const fn of(name: &'static str, class: Class, source: &'static str) -> Workload {
    Workload {
        name,
        class,
        source,
    }
}

/// The workload of this name; MPI's may be called `mpi`, PostgreSQL's `pgbench`.
pub fn workload(name: &str) -> Option<Workload> {
    let name = match name {
        "mpi" => "mpi-search",
        "pgbench" | "postgres" => "postgresql",
        name => name,
    };
    ALL.iter().find(|workload| workload.name == name).copied()
}

/// Every name.
pub fn workloads() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|workload| workload.name)
}
