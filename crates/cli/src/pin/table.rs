//! Plans, placements and restorations as text.

use std::fmt::Write as _;

use tare_host::printable::printable;
use tare_pin::{CpuList, Pinned, Plan, Seat, Undone};
use tare_policy::placement::CpuMask;
use tare_probe::vm::Role;

/// A plan under `--dry-run`.
pub(crate) fn planned(plan: &Plan) -> String {
    let seats = plan.seats();
    let rows = seats.iter().map(|seat| (seat, None));
    let mut text = heading(plan, "would get");
    text.push_str(&rows_of(rows.collect()));
    text
}

/// A placement as read back from the kernel.
pub(crate) fn placed(pinned: &Pinned) -> String {
    let seats = pinned.read_back();
    let rows = seats.iter().map(|(seat, now)| (seat, Some(*now)));
    let mut text = heading(pinned.plan(), "has");
    text.push_str(&rows_of(rows.collect()));
    text
}

/// The result of restoring.
pub(crate) fn undone(undone: &Undone) -> String {
    let mut text = format!(
        "placement of {} restored",
        plural(undone.restored, "thread")
    );
    if undone.cpusets > 0 {
        let _ = write!(text, ", and of {}", plural(undone.cpusets, "cgroup"));
    }
    if undone.ended > 0 {
        let _ = write!(text, "; {} ended meanwhile", plural(undone.ended, "thread"));
    }
    text
}

fn plural(count: usize, what: &str) -> String {
    let s = if count == 1 { "" } else { "s" };
    format!("{count} {what}{s}")
}

/// Short name of a thread's role.
pub(crate) fn role(role: Role) -> String {
    match role {
        Role::Vcpu(index) => format!("vcpu{index}"),
        Role::Emulator => "emulator".to_owned(),
        Role::Io => "io".to_owned(),
        Role::Worker => "worker".to_owned(),
        Role::Vhost => "vhost".to_owned(),
        Role::Helper => "helper".to_owned(),
        Role::Kvm => "kvm".to_owned(),
        Role::Other => "-".to_owned(),
    }
}

fn heading(plan: &Plan, verb: &str) -> String {
    let mut text = String::new();
    if let Some(cpuset) = plan.cpuset() {
        let cpus = CpuList(plan.placement.all);
        let folder = cpuset.folder.display();
        let _ = writeln!(text, "The cgroup {folder} {verb} CPU {cpus}.");
    }
    text
}

fn rows_of(rows: Vec<(&Seat, Option<CpuMask>)>) -> String {
    let mut text = format!(
        "{:>8} {:>8}  {:<16} {:<9} {:<10} ACTUAL\n",
        "PID", "TID", "NAME", "ROLE", "WANTED"
    );
    for (seat, now) in rows {
        let now = now.map_or("-".to_owned(), |now| CpuList(now).to_string());
        let name = printable(&seat.task.name);
        let (id, cpus) = (seat.task.id, CpuList(seat.cpus).to_string());
        let role = role(seat.role);
        let _ = writeln!(
            text,
            "{:>8} {:>8}  {name:<16} {role:<9} {cpus:<10} {now}",
            id.pid, id.tid
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_back_is_said_in_a_line() {
        let mut all = Undone {
            restored: 3,
            ..Undone::default()
        };
        assert_eq!(undone(&all), "placement of 3 threads restored");
        all.ended = 1;
        all.cpusets = 2;
        assert_eq!(
            undone(&all),
            "placement of 3 threads restored, and of 2 cgroups; 1 thread ended meanwhile"
        );
    }
}
