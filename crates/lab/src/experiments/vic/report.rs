//! What the runs say.

use tare_control::stats::Kvm;

use super::Vic;
use super::plan::{Arm, CIF, Load};
use crate::figure::{Figure, find, value};
use crate::number::number;
use crate::report::coalescing::{ratio_distribution, ratio_over_time};
use crate::report::{ReportText, Section, table};

pub(super) fn report_text(experiment: &Vic, figures: &[Figure]) -> ReportText {
    ReportText {
        title: "Interrupts of a disk: every completion, or as many as the depth needs".to_owned(),
        question: "A guest with many commands in flight does not need an interrupt for each. In \
                   vIC 2011, delivering some completions only brought up to 19 % more commands a \
                   second and 17 % less CPU, and nothing was lost with few in flight. Does it \
                   here, and what happens to somebody who waits for a flush meanwhile?"
            .to_owned(),
        glance: by_depth_at_a_glance(figures),
        answer: answer(experiment, figures),
        sections: sections(experiment, figures),
        method: method(experiment),
        limitations: limitations(experiment),
    }
}

/// Each depth in a line: what is saved, what it costs, and what two arms that are the same
/// differ by.
fn by_depth_at_a_glance(figures: &[Figure]) -> String {
    let text = |name: String| find(figures, &name).map_or("–".to_owned(), Figure::text);
    let row = |cif: &u32| {
        find(figures, &format!("latency_vic_over_off.cif{cif}"))?;
        let interrupts = |arm: Arm| {
            let name = format!("interrupts_per_io.cif{cif}.{}", arm.name());
            value(figures, &name).map_or("–".to_owned(), number)
        };
        let over = |what: &str| text(format!("{what}.cif{cif}"));
        Some(vec![
            cif.to_string(),
            format!("{} → {}", interrupts(Arm::Off), interrupts(Arm::Vic)),
            over("latency_vic_over_off"),
            over("iops_off_over_vic"),
            over("cpu_vic_over_off"),
            over("latency_again_over_off"),
        ])
    };
    let rows: Vec<Vec<String>> = CIF.iter().filter_map(row).collect();
    if rows.is_empty() {
        return String::new();
    }
    table(
        &[
            "in flight",
            "interrupts a read",
            "median latency, auto / off",
            "reads/s, off / auto",
            "CPU a read, auto / off",
            "A/A: median latency, off / off",
        ],
        &rows,
    )
}

/// What two arms that are the same differ by, and what the rule costs at worst.
fn resolution_and_worst_case(experiment: &Vic, figures: &[Figure]) -> Vec<String> {
    let same = figures.iter().filter(|figure| {
        figure.name.starts_with("latency_again_over_off") && figure.interval().is_some()
    });
    let wide = |figure: &Figure| {
        let (low, high) = figure.interval().unwrap_or((1.0, 1.0));
        (high / low).sqrt() - 1.0
    };
    let widest = same.max_by(|a, b| wide(a).total_cmp(&wide(b)));
    let widest = widest.map(|figure| {
        format!(
            "Two arms without coalescing show what cannot be told apart: the widest interval of \
             their median latency is ±{} % ({}).",
            number(wide(figure) * 100.0),
            figure.name.rsplit('.').next().unwrap_or_default()
        )
    });
    let worst = experiment.worst.iter().map(|case| {
        let loads = match case.kind.as_str() {
            "mixed" => "loads of mixed latency",
            _ => "other loads",
        };
        format!(
            "Worst case of auto against off over {} simulated {loads}: {}, {} × {}.",
            case.loads,
            case.load,
            case.what,
            number(case.factor)
        )
    });
    widest.into_iter().chain(worst).collect()
}

fn answer(experiment: &Vic, figures: &[Figure]) -> Vec<String> {
    let get = |name: &str| value(figures, name);
    let mut sentences = resolution_and_worst_case(experiment, figures);
    for cif in [32, 64] {
        let of = |name: &str, arm: &str| get(&format!("{name}.cif{cif}.{arm}"));
        if let (Some(off), Some(vic), Some(iops), Some(cpu)) = (
            of("interrupts_per_io", "off"),
            of("interrupts_per_io", "vic"),
            get(&format!("iops_gain_pct.cif{cif}")),
            get(&format!("cpu_gain_pct.cif{cif}")),
        ) {
            sentences.push(format!(
                "With {cif} reads in flight, {} interrupts a read become {}; reads a second \
                 change by {} %, host CPU time for each falls by {} %.",
                number(off),
                number(vic),
                number(iops),
                number(cpu)
            ));
        }
    }
    if let (Some(iops), Some(cpu), Some(share)) = (
        get("iops_gain_pct.cif32.busy"),
        get("cpu_gain_pct.cif32.busy"),
        get("interrupt_share_pct.cif32.busy"),
    ) {
        sentences.push(format!(
            "Where the guest is never idle and 32 reads are with the disk, reads a second change \
             by {} % and CPU time for each falls by {} %; interrupts are {} % of what the guest \
             executes for a read there, which is the most that could be saved.",
            number(iops),
            number(cpu),
            number(share)
        ));
    }
    let fsync = |arm: &str| get(&format!("fsync_p50_us.{arm}"));
    if let (Some(off), Some(vic)) = (fsync("off"), fsync("vic")) {
        let plain = fsync("plain").map_or(String::new(), |plain| {
            format!(
                "; {} µs where one in eight is delivered whatever waits",
                number(plain)
            )
        });
        sentences.push(format!(
            "A flush beside 32 readers takes {} µs at the median without coalescing and {} µs \
             with it{plain}.",
            number(off),
            number(vic)
        ));
    }
    sentences.extend(database(figures));
    sentences
}

/// What the database did.
fn database(figures: &[Figure]) -> Option<String> {
    let pair = |name: &str| {
        let of = |arm: &str| value(figures, &format!("{name}.{arm}"));
        Some((of("off")?, of("vic")?))
    };
    let (tps, per_s) = (pair("tps")?, pair("db_interrupts_per_s")?);
    let per_io = pair("db_interrupts_per_io")?;
    Some(format!(
        "PostgreSQL over tare blk: {} transactions a second without coalescing and {} with it, {} \
         and {} interrupts a second ({} and {} for each request).",
        number(tps.0),
        number(tps.1),
        number(per_s.0),
        number(per_s.1),
        number(per_io.0),
        number(per_io.1)
    ))
}

fn sections(experiment: &Vic, figures: &[Figure]) -> Vec<Section> {
    let mut sections: Vec<_> = Load::ALL
        .into_iter()
        .filter_map(|load| by_depth(load, figures))
        .collect();
    sections.extend(database_table(figures));
    if !experiment.over_time.is_empty() {
        sections.push(Section {
            title: "R over time".to_owned(),
            lead: "Completions that vIC delivered, in percent, 4 KiB random reads: one window for \
                   each depth, from 1 to 64 in flight."
                .to_owned(),
            html: ratio_over_time(&[("vic", &experiment.over_time)]),
        });
    }
    if !experiment.distribution.is_empty() {
        sections.push(Section {
            title: "The distribution of R".to_owned(),
            lead: "The same machine: its completions by the ratio of their epoch.".to_owned(),
            html: ratio_distribution(&experiment.distribution, 0),
        });
    }
    sections
}

/// The database's runs.
fn database_table(figures: &[Figure]) -> Option<Section> {
    const COLUMNS: [&str; 6] = [
        "tps",
        "db_latency_ms",
        "db_interrupts_per_s",
        "db_interrupts_per_io",
        "db_iops",
        "db_in_flight",
    ];
    let row = |arm: Arm| {
        let get = |name: &&str| value(figures, &format!("{name}.{}", arm.name()));
        get(&COLUMNS[0])?;
        let cells = COLUMNS
            .iter()
            .map(|name| get(name).map_or("–".into(), number));
        Some(
            std::iter::once(arm.name().to_owned())
                .chain(cells)
                .collect(),
        )
    };
    let rows: Vec<Vec<String>> = [Arm::Off, Arm::Vic].into_iter().filter_map(row).collect();
    (!rows.is_empty()).then(|| Section {
        title: "A database".to_owned(),
        lead: "PostgreSQL and pgbench's TPC-B in a Linux guest in QEMU, whose disk is served by \
               tare blk and changes between the arms while it runs. In flight: as the disk \
               counts it at each completion."
            .to_owned(),
        html: table(
            &[
                "arm",
                "transactions/s",
                "a transaction, ms",
                "interrupts/s",
                "interrupts",
                "requests/s",
                "in flight",
            ],
            &rows,
        ),
    })
}

/// A table of one load: a row for each depth and arm.
fn by_depth(load: Load, figures: &[Figure]) -> Option<Section> {
    const COLUMNS: [&str; 8] = [
        "in_flight",
        "iops",
        "interrupts_per_io",
        "delivered_per_io",
        "cpu_us_per_io",
        "latency_p50_us",
        "latency_p99_us",
        "instructions_per_io",
    ];
    let mut rows = Vec::new();
    for cif in CIF {
        for arm in Arm::of(load) {
            let suffix = format!("cif{cif}{}.{}", load.infix(), arm.name());
            let get = |name: &&str| value(figures, &format!("{name}.{suffix}"));
            if get(&"iops").is_none() {
                continue;
            }
            let cells = COLUMNS
                .iter()
                .map(|name| get(name).map_or("–".into(), number));
            let first = [cif.to_string(), arm.name().to_owned()];
            rows.push(first.into_iter().chain(cells).collect());
        }
    }
    let rows: Vec<Vec<String>> = rows;
    (!rows.is_empty()).then(|| Section {
        title: load.about().to_owned(),
        lead: format!(
            "{}; medians over the rounds. With the disk: the mean as the device counts it at \
             each completion. Interrupts as the guest's handler counts them, deliveries as the \
             rule asks for them (the driver wants none while it is still at work), CPU time of \
             all host threads of the machine.",
            match load {
                Load::Busy => "By commands that are to be with the disk, for each two threads",
                _ => "By commands in flight, for each a thread",
            }
        ),
        html: table(
            &[
                "in flight",
                "arm",
                "with the disk",
                "1/s",
                "interrupts",
                "delivered",
                "CPU, µs",
                "p50, µs",
                "p99, µs",
                "instructions",
            ],
            &rows,
        ),
    })
}

fn method(experiment: &Vic) -> Vec<String> {
    let plan = &experiment.plan;
    let mut method = vec![
        format!(
            "Image {}, one vCPU; {} rounds, arms in rotated order, a machine for each arm and load \
             that goes through the depths: {} ms that count after {} ms that do not. Arms are \
             compared in pairs of one round; again is off once more.",
            experiment.image,
            plan.rounds,
            plan.counted.as_millis(),
            plan.warm_up.as_millis()
        ),
        "The guest has a thread for each command in flight, which sends the next when its own \
         has completed: completions come one by one. All arms use one file, cached by \
         the host unless the file system takes direct I/O."
            .to_owned(),
        "CPU time, instructions and the disk's counters are read when counting begins and when it \
         ends, while all threads are at work. Latencies are the guest's own, within 1 %."
            .to_owned(),
        "QEMU's own virtio-blk is behind its microvm with virtio over MMIO, whose interrupts cost \
         two more exits than MSI-X."
            .to_owned(),
    ];
    if experiment.latency_us() > 0 {
        method.push(format!(
            "The guest sends at most {} commands a second, so a command took the disk {} ms at \
             least (latency_us=): else the emulated guest is the slower one and the device has \
             one command at a time at any depth, which the table of reads from the host's cache \
             shows. For a guest that is never idle the latency is such that with two threads for \
             each as many commands are with the disk as the table says. QEMU's disk is as slow: \
             its requests wait for a null device of that latency besides the file, and it reads \
             the file twice.",
            number(experiment.pace.unwrap_or_default()),
            number(f64::from(experiment.latency_us()) / 1e3)
        ));
    }
    if let Some(settings) = &experiment.settings {
        method.push(format!("vIC's settings as read back: {settings}."));
    }
    if let Some(plan) = &experiment.plan.database {
        method.push(format!(
            "The database's machine and runs: {}.",
            plan.describe()
        ));
    }
    if experiment.kvm == Kvm::Emulated {
        method.push(format!(
            "This KVM emulates the guest's ring 0, some thousand times slower than hardware: \
             {} were set so that the rule acts at these rates. Figures in time are the emulator's; \
             counts for each command are the guest's.",
            experiment.rule_words(experiment.latency_us()).join(" and ")
        ));
    }
    method
}

fn limitations(experiment: &Vic) -> Vec<String> {
    let missing = experiment.missing.iter();
    missing.map(|why| format!("Not measured: {why}.")).collect()
}
