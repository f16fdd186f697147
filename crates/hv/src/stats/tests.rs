//! Descriptions made by hand, right and wrong.

use std::io::Write;

use kvm_bindings as kvm;

use super::*;

const NAME_BYTES: usize = 16;

struct Stats {
    descriptors: Vec<u8>,
    count: u32,
    data: Vec<u8>,
}

impl Stats {
    fn new() -> Self {
        Self {
            descriptors: Vec::new(),
            count: 0,
            data: Vec::new(),
        }
    }

    fn add(mut self, name: &str, flags: u32, exponent: i16, values: &[u64]) -> Self {
        let out = &mut self.descriptors;
        out.extend(flags.to_le_bytes());
        out.extend(exponent.to_le_bytes());
        out.extend((values.len() as u16).to_le_bytes());
        out.extend((self.data.len() as u32).to_le_bytes());
        out.extend(7_u32.to_le_bytes());
        let mut field = [0; NAME_BYTES];
        field[..name.len()].copy_from_slice(name.as_bytes());
        out.extend(field);
        values
            .iter()
            .for_each(|value| self.data.extend(value.to_le_bytes()));
        self.count += 1;
        self
    }

    fn file(&self) -> File {
        let mut file = anonymous_file();
        let header = [
            0,
            NAME_BYTES as u32,
            self.count,
            24,
            40,
            40 + self.descriptors.len() as u32,
        ];
        for field in header {
            file.write_all(&field.to_le_bytes()).unwrap();
        }
        file.write_all(&[0; 16]).unwrap();
        file.write_all(&self.descriptors).unwrap();
        file.write_all(&self.data).unwrap();
        file
    }
}

fn anonymous_file() -> File {
    // SAFETY: the name is a C string; the result is checked.
    let fd = unsafe { libc::memfd_create(c"stats".as_ptr(), 0) };
    assert!(fd >= 0);
    // SAFETY: the descriptor is ours alone.
    unsafe { File::from_raw_fd(fd) }
}

#[test]
fn scalars_and_histograms_are_read() {
    let file = Stats::new()
        .add("exits", 0, 0, &[5])
        .add("wait", kvm::KVM_STATS_UNIT_SECONDS, -9, &[1_000])
        .add("hist", kvm::KVM_STATS_TYPE_LOG_HIST, 0, &[1, 2, 3])
        .add("linear", kvm::KVM_STATS_TYPE_LINEAR_HIST, 0, &[4, 5])
        .add("now", kvm::KVM_STATS_TYPE_INSTANT, 0, &[1])
        .file();
    let stats = StatsFd::parse(file).unwrap();
    let values = stats.read().unwrap();
    assert_eq!(values[0].value, StatsValue::Scalar(5));
    assert_eq!(values[0].unit, StatsUnit::Count);
    assert_eq!(values[1].name, "wait");
    assert_eq!(values[1].unit, StatsUnit::Nanoseconds);
    assert_eq!(values[2].value, StatsValue::LogHistogram(vec![1, 2, 3]));
    let counts = vec![4, 5];
    let bucket_size = 7;
    assert_eq!(
        values[3].value,
        StatsValue::LinearHistogram {
            bucket_size,
            counts
        }
    );
    let only_grows: Vec<bool> = values.iter().map(|stat| stat.only_grows).collect();
    assert_eq!(only_grows, [true, true, false, false, false]);
    assert_eq!(stats.scalar("wait").unwrap(), Some(1_000));
    assert_eq!(stats.scalar("hist").unwrap(), None);
    assert_eq!(stats.scalar("none").unwrap(), None);
}

#[test]
fn a_value_far_away_is_refused() {
    let mut stats = Stats::new().add("exits", 0, 0, &[5]);
    stats.descriptors[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
    let error = StatsFd::parse(stats.file()).unwrap_err();
    assert!(matches!(error, StatsError::Malformed(_)));
}

#[test]
fn an_absurd_header_is_refused() {
    for (field, value) in [(1, 0), (1, 1 << 20), (2, 1 << 20)] {
        let file = Stats::new().add("exits", 0, 0, &[5]).file();
        file.write_all_at(&u32::to_le_bytes(value), 4 * field)
            .unwrap();
        assert!(matches!(
            StatsFd::parse(file),
            Err(StatsError::Malformed(_))
        ));
    }
}

#[test]
fn a_short_file_is_an_error_and_not_a_panic() {
    let file = Stats::new().add("exits", 0, 0, &[5]).file();
    file.set_len(50).unwrap();
    assert!(matches!(StatsFd::parse(file), Err(StatsError::Read(_))));
}
