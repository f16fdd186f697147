//! Resident memory of a process and its descendants, from `/proc/PID/smaps_rollup`.

use std::collections::BTreeSet;
use std::fs;

use super::descendants;

/// Resident bytes of `root`, its descendants and `helpers` that have left its family; of pages
/// that several processes map, each has its part (Pss, `proc(5)`). `None` where one of them
/// cannot be read, or has ended.
pub(crate) fn resident_bytes(root: u32, helpers: &[u32]) -> Option<u64> {
    let mut all = BTreeSet::from([root]);
    all.extend(descendants(root));
    all.extend(helpers);
    let kib = all.into_iter().map(|pid| {
        let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
        pss_kib(&rollup)
    });
    Some(kib.sum::<Option<u64>>()? << 10)
}

fn pss_kib(rollup: &str) -> Option<u64> {
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn pages_that_are_shared_count_in_part() {
        let rollup = "55d0-7ffd ---p 00000000 00:00 0 [rollup]\n\
                      Rss:                2048 kB\nPss:                1024 kB\nPss_Anon: 1 kB\n";
        assert_eq!(pss_kib(rollup), Some(1024));
        assert_eq!(pss_kib("Pss_Anon: 1 kB\n"), None);
    }

    #[test]
    fn a_family_is_more_than_its_parent_and_what_is_gone_has_no_memory() {
        // The shell says when it has a child.
        let mut parent = Command::new("sh")
            .args(["-c", "sleep 60 & echo ready; wait"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = [0; 6];
        let mut stdout = parent.stdout.take().unwrap();
        std::io::Read::read_exact(&mut stdout, &mut said).unwrap();
        let children = descendants(parent.id());
        let all = resident_bytes(parent.id(), &[]);
        for pid in &children {
            let _ = Command::new("kill").arg(pid.to_string()).status();
        }
        parent.kill().unwrap();
        parent.wait().unwrap();
        assert_eq!(children.len(), 1);
        assert!(all.unwrap() > 0);
        assert_eq!(resident_bytes(parent.id(), &[]), None);
    }
}
