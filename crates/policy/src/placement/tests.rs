use std::vec::Vec;

use proptest::prelude::*;

use super::*;

/// `cores` cores of two CPUs in each of `nodes` nodes, numbered as Linux does:
/// first threads of all cores, then second ones.
fn host(nodes: u16, cores: u16) -> Vec<Cpu> {
    let all = nodes * cores;
    (0..all * 2)
        .map(|number| Cpu {
            number,
            core: number % all,
            node: number % all / cores,
            isolated: Isolation::Shared,
            load_permille: 0,
        })
        .collect()
}

fn demand(vcpus: u16) -> Demand {
    Demand {
        vcpus,
        memory_node: None,
    }
}

fn cpus(mask: CpuMask) -> Vec<u16> {
    mask.iter().collect()
}

#[test]
fn vcpus_get_cores_of_their_own_on_one_node() {
    let placement = place(&host(2, 4), demand(4)).unwrap();
    assert_eq!(placement.sharing, Sharing::Apart);
    let cores: Vec<u16> = (0..4).map(|i| cpus(placement.vcpu(i))[0] % 8).collect();
    let mut different = cores.clone();
    different.sort_unstable();
    different.dedup();
    assert_eq!(different, [0, 1, 2, 3], "node 0, four cores");
    assert_eq!(placement.helpers.count(), 4);
    assert!(placement.helpers.and(&placement.all).is_empty());
}

#[test]
fn memory_decides_the_node_and_load_where_it_does_not() {
    let mut host = host(2, 4);
    let near = Demand {
        memory_node: Some(1),
        ..demand(2)
    };
    assert!(
        cpus(place(&host, near).unwrap().all)
            .iter()
            .all(|cpu| cpu % 8 >= 4)
    );
    host[0].load_permille = 900;
    assert!(
        cpus(place(&host, demand(2)).unwrap().all)
            .iter()
            .all(|cpu| cpu % 8 >= 4)
    );
}

#[test]
fn a_busy_cpu_is_taken_last() {
    let mut host = host(1, 4);
    host[7].load_permille = 1000;
    host[3].load_permille = 500;
    let placement = place(&host, demand(3)).unwrap();
    assert_eq!(cpus(placement.all), [4, 5, 6]);
}

#[test]
fn isolated_cpus_are_for_vcpus_and_not_for_helpers() {
    let mut host = host(1, 4);
    for cpu in [1, 2] {
        host[cpu].isolated = Isolation::Isolated;
    }
    let placement = place(&host, demand(2)).unwrap();
    assert_eq!(cpus(placement.all), [1, 2]);
    assert_eq!(cpus(placement.helpers), [0, 3, 4, 5, 6, 7]);
    // With one vCPU the other isolated CPU stays free.
    let placement = place(&host, demand(1)).unwrap();
    assert_eq!(cpus(placement.helpers), [0, 3, 4, 5, 6, 7]);
}

#[test]
fn two_cores_hold_one_vcpu_apart_and_two_with_their_helpers() {
    let host: Vec<Cpu> = (0..2)
        .map(|number| Cpu {
            number,
            core: number,
            node: 0,
            isolated: Isolation::Shared,
            load_permille: 0,
        })
        .collect();
    let one = place(&host, demand(1)).unwrap();
    assert_eq!(
        (cpus(one.vcpu(0)), cpus(one.helpers)),
        ([1].into(), [0].into())
    );
    let two = place(&host, demand(2)).unwrap();
    assert_eq!(two.sharing, Sharing::WithHelpers);
    assert_eq!(
        (cpus(two.vcpu(0)), cpus(two.vcpu(1))),
        ([1].into(), [0].into())
    );
    assert_eq!(cpus(two.helpers), [0, 1]);
    let three = place(&host, demand(3)).unwrap();
    assert_eq!(three.sharing, Sharing::Overcommitted);
    assert_eq!(cpus(three.vcpu(2)), [0, 1]);
}

#[test]
fn nothing_is_placed_on_nothing() {
    assert_eq!(place(&[], demand(1)), None);
    assert_eq!(place(&host(1, 1), demand(0)), None);
}

#[test]
fn chr_is_a_share_of_the_host() {
    assert_eq!(chr_permille(16_000, 112), Some(142));
    assert_eq!(chr_permille(1_500, 2), Some(750));
    assert_eq!(chr_permille(9_000, 2), Some(1000));
    assert_eq!(chr_permille(1, 0), None);
}

#[test]
fn the_host_of_cpu_pinning_2020_has_its_sizes_and_two_cores_have_none_for_cpu_bound() {
    assert_eq!(Class::CpuBound.chr().cores(112), Some((8, 15)));
    assert_eq!(Class::IoBound.chr().cores(112), Some((16, 31)));
    assert_eq!(Class::UltraIoBound.chr().cores(112), Some((32, 63)));
    assert_eq!(Class::CpuBound.chr().cores(2), None);
    assert_eq!(Class::UltraIoBound.chr().cores(2), Some((1, 1)));
}

#[test]
fn classes_follow_the_share_of_computing() {
    assert_eq!(Class::of(95, 5), Some(Class::CpuBound));
    assert_eq!(Class::of(50, 50), Some(Class::IoBound));
    assert_eq!(Class::of(5, 95), Some(Class::UltraIoBound));
    assert_eq!(Class::of(0, 0), None);
    let order = Class::CpuBound.chr().place(300);
    assert_eq!(order, core::cmp::Ordering::Greater);
}

proptest! {
    #[test]
    fn every_vcpu_has_one_cpu_alone_wherever_there_are_enough(
        nodes in 1..4u16,
        cores in 1..6u16,
        vcpus in 1..48u16,
        isolated in prop::collection::vec(any::<bool>(), 48),
        loads in prop::collection::vec(0..1000u16, 48),
    ) {
        let mut host = host(nodes, cores);
        for cpu in &mut host {
            let number = usize::from(cpu.number);
            cpu.load_permille = loads[number];
            if isolated[number] {
                cpu.isolated = Isolation::Isolated;
            }
        }
        let placement = place(&host, demand(vcpus)).unwrap();
        let usable: CpuMask = host.iter().map(|cpu| cpu.number).collect();
        prop_assert!(placement.all.is_within(&usable) && placement.helpers.is_within(&usable));
        prop_assert!(!placement.helpers.is_empty());
        if usize::from(vcpus) <= host.len() {
            prop_assert_eq!(placement.all.count(), u32::from(vcpus));
            let together = (0..vcpus).fold(CpuMask::EMPTY, |sum, i| sum.or(&placement.vcpu(i)));
            prop_assert_eq!(together, placement.all);
        } else {
            prop_assert_eq!(placement.sharing, Sharing::Overcommitted);
        }
        if placement.sharing == Sharing::Apart {
            prop_assert!(placement.helpers.and(&placement.all).is_empty());
        }
    }
}
