//! Workloads whose kind is known beforehand: CPU-Pinning 2020's and the lab's.

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
    of("ffmpeg", Class::CpuBound, "CPU-Pinning 2020, slide 13"),
    of("mpi-search", Class::CpuBound, "CPU-Pinning 2020, slide 15"),
    of("mpi-prime", Class::CpuBound, "CPU-Pinning 2020, slide 15"),
    of("wordpress", Class::IoBound, "CPU-Pinning 2020, slide 17"),
    of(
        "cassandra",
        Class::UltraIoBound,
        "CPU-Pinning 2020, slides 20 and 30",
    ),
    of(
        "redis",
        Class::IoBound,
        "a network server, like WordPress in CPU-Pinning 2020",
    ),
    of(
        "memcached",
        Class::IoBound,
        "a network server, like WordPress in CPU-Pinning 2020",
    ),
    of(
        "postgresql",
        Class::UltraIoBound,
        "a database, like Cassandra in CPU-Pinning 2020",
    ),
    of("fio", Class::UltraIoBound, "does only I/O"),
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
