//! A guest's requests for huge pages ([`tare_abi::ports::HUGE_PAGE`]), where the host leaves them to
//! advice and the user said nothing.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use tare_devices::CounterSource;
use tare_hv::{GuestMemoryMmap, advise_huge_page};
use vm_memory::GuestAddress;

/// Most requests that are followed. Each may take one of the process's mappings more, of which
/// Linux allows 65,530 (`vm.max_map_count`).
const MOST: u64 = 16_384;
const HUGE_PAGE: u64 = 2 << 20;

/// Follows requests of vCPU threads.
#[derive(Debug)]
pub(crate) struct HugePageRequests {
    /// The guest's memory, if requests are followed.
    memory: Option<GuestMemoryMmap>,
    followed: AtomicU64,
    refused: AtomicU64,
}

impl HugePageRequests {
    pub(crate) fn new(memory: Option<GuestMemoryMmap>) -> Self {
        Self {
            memory,
            followed: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        }
    }

    /// A write to the port. Where the user has chosen, none has an effect.
    pub(crate) fn write(&self, data: &[u8]) {
        let Some(memory) = &self.memory else {
            return;
        };
        let counter = if self.can_follow(memory, data) {
            &self.followed
        } else {
            &self.refused
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    fn can_follow(&self, memory: &GuestMemoryMmap, data: &[u8]) -> bool {
        let Ok(number) = <[u8; 4]>::try_from(data) else {
            return false;
        };
        let address = u64::from(u32::from_le_bytes(number)) * HUGE_PAGE;
        self.followed.load(Ordering::Relaxed) < MOST
            && advise_huge_page(memory, GuestAddress(address))
    }
}

impl CounterSource for HugePageRequests {
    fn snapshot(&self) -> BTreeMap<String, u64> {
        let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        BTreeMap::from([
            ("huge_pages_requested".to_owned(), value(&self.followed)),
            (
                "huge_page_requests_refused".to_owned(),
                value(&self.refused),
            ),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(requests: &HugePageRequests) -> [u64; 2] {
        let counts = requests.snapshot();
        ["huge_pages_requested", "huge_page_requests_refused"].map(|name| counts[name])
    }

    #[test]
    fn requests_outside_of_memory_or_of_another_width_are_refused_and_counted() {
        let memory = tare_hv::machine_memory(4 << 20, tare_hv::HugePages::AsHost).unwrap();
        let requests = HugePageRequests::new(Some(memory));
        for wrong in [&[2, 0, 0, 0][..], &[0xff; 4], &[0], &[0; 8], &[]] {
            requests.write(wrong);
        }
        assert_eq!(counted(&requests), [0, 5]);
        requests.write(&[1, 0, 0, 0]);
        assert_eq!(counted(&requests).iter().sum::<u64>(), 6);
    }

    #[test]
    fn none_is_followed_where_the_user_has_chosen() {
        let requests = HugePageRequests::new(None);
        requests.write(&[0; 4]);
        assert_eq!(counted(&requests), [0, 0]);
    }
}
