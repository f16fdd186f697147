//! Findings on made runs.

use super::*;
use crate::plan::Arm;
use crate::tests::{made, run};

fn evidence(data: &Data) -> Evidence<'_> {
    let names = data.workloads().into_iter();
    Evidence {
        data,
        kinds: names.map(|name| (name, WorkloadKind::Cpu)).collect(),
        many: vec![("v".to_owned(), "w".to_owned())],
        translated: false,
        host_cpus: 8,
    }
}

/// The runs of `w`, and of `v` with other times on a platform.
fn with_another(platform: Platform, factor: f64) -> Data {
    let mut data = made(&[("a", 10.0)]);
    let others: Vec<_> = data.runs.clone();
    data.runs.extend(others.into_iter().map(|mut run| {
        run.cell.workload = "v".to_owned();
        if run.cell.place.platform == platform {
            run.time = run.time.map(|time| time * factor);
        }
        run
    }));
    data
}

#[test]
fn two_applications_that_pay_differently_decide() {
    let data = with_another(Platform::Container, 0.8);
    let agreement = application(&evidence(&data));
    assert_eq!(agreement.text().0, "agrees", "{agreement:?}");
    let data = with_another(Platform::Container, 1.0);
    let agreement = application(&evidence(&data));
    assert_eq!(agreement.text().0, "undecided here", "{agreement:?}");
    let mut data = made(&[("a", 10.0)]);
    let agreement = application(&evidence(&data));
    assert_eq!(agreement.text().0, "undecided here", "{agreement:?}");
    // Both cost nothing.
    data.runs.clear();
    for mut run in with_another(Platform::Vm, 1.0).runs {
        if run.cell.place.platform == Platform::Bare {
            data.runs.push(run.clone());
            let place = run.cell.place;
            run.cell.place = Place::new(Platform::Container, Mode::Vanilla, place.size, 8);
            data.runs.push(run);
        }
    }
    let agreement = application(&evidence(&data));
    assert_eq!(agreement.text().0, "disagrees", "{agreement:?}");
}

/// What workloads are cheapest and dearest at depends on the size, so sizes are not pooled, and at
/// the host's size there is no limit.
#[test]
fn workloads_are_compared_at_one_size_that_one_limit_holds() {
    let only = |sizes: [(&str, u32); 2]| {
        let mut data = with_another(Platform::Container, 0.8);
        data.runs.retain(|run| {
            let place = run.cell.place;
            let is_one =
                |(workload, size): (&str, u32)| run.cell.workload == workload && place.size == size;
            place.platform != Platform::Container || sizes.into_iter().any(is_one)
        });
        let agreement = application(&evidence(&data));
        let (here, why) = agreement.text();
        (here, why.to_owned())
    };
    // 1.4 times by quota on one CPU, and 0.84 times on all of them.
    assert_eq!(only([("w", 1), ("v", 8)]).0, "undecided here");
    assert_eq!(only([("w", 1), ("v", 4)]).0, "undecided here");
    assert_eq!(only([("w", 8), ("v", 8)]).0, "undecided here");
    let (here, why) = only([("w", 2), ("v", 2)]);
    assert_eq!(here, "agrees");
    assert!(
        why.contains("in containers of 2 CPUs by quota: p "),
        "{why}"
    );
}

#[test]
fn of_many_workloads_that_pay_the_same_two_seldom_seem_to_differ() {
    const WORKLOADS: u32 = 8;
    let agrees = |seed: u64| {
        let mut dice = tare_stats::SplitMix64::new(seed);
        let mut data = Data::default();
        for workload in 0..WORKLOADS {
            for block in 0..8 {
                for (platform, mean) in [(Platform::Bare, 1.0), (Platform::Container, 1.4)] {
                    let place = Place::new(platform, Mode::Vanilla, 1, 8);
                    let took = crate::tests::time(&mut dice, mean);
                    let mut run = run("a", &format!("w{workload}"), place, Arm::Main, took);
                    run.block = Some(block);
                    data.runs.push(run);
                }
            }
        }
        application(&evidence(&data)).text().0 == "agrees"
    };
    let alarms = (1..=200).filter(|seed| agrees(*seed)).count();
    // Of 200 at 1 % ten are more than four standard errors above.
    assert!(alarms < 10, "{alarms} of 200");
}

/// Runs in the blocks of a plan: container and appliance in one, the machine in its own. A block's
/// runs take up to three times as long as others, and of them those on platforms up to 2.5 times as
/// long as their baseline; in the container they are `slower` on top.
fn in_blocks(seed: u64, workloads: u32, blocks: u64, slower: f64) -> Data {
    let mut dice = tare_stats::SplitMix64::new(seed);
    let mut data = Data::default();
    let mut add = |workload: u32, number: u64, platforms: &[Platform]| {
        let mut up_to = |percent: usize| 1.0 + dice.below(percent) as f64 / 100.0;
        let (block, arms) = (up_to(200), up_to(150));
        for platform in platforms {
            let factor = match platform {
                Platform::Bare => 1.0,
                Platform::Container => 1.3 * arms * slower,
                _ => 1.3 * arms,
            };
            let place = Place::new(*platform, Mode::Vanilla, 1, 8);
            let took = crate::tests::time(&mut dice, block * factor);
            let mut run = run("a", &format!("w{workload}"), place, Arm::Main, took);
            run.block = Some(number);
            data.runs.push(run);
        }
    };
    for workload in 0..workloads {
        for block in 0..blocks {
            let host = [Platform::Bare, Platform::Container, Platform::Appliance];
            add(workload, 2 * block, &host);
            add(
                workload,
                2 * block + 1,
                &[Platform::Bare, Platform::VmContainer],
            );
        }
    }
    data
}

/// All workloads wait, and each is the work of the one before it in many processes.
fn waiting(data: &Data) -> Evidence<'_> {
    let names = data.workloads();
    let pairs = names.windows(2);
    Evidence {
        many: pairs.map(|it| (it[0].clone(), it[1].clone())).collect(),
        kinds: names
            .into_iter()
            .map(|name| (name, WorkloadKind::Io))
            .collect(),
        ..evidence(data)
    }
}

#[test]
fn of_many_costs_that_are_equal_few_seem_to_differ() {
    const DRAWS: usize = 400;
    let mut alarms = [0; 3];
    for seed in 1..=DRAWS as u64 {
        let data = in_blocks(seed, 24, 14, 1.0);
        let evidence = waiting(&data);
        let said = [
            container_costs_more(&evidence, Platform::Appliance),
            nested(&evidence),
            multitasking(&evidence),
        ];
        for (alarms, said) in alarms.iter_mut().zip(said) {
            *alarms += usize::from(said.text().0 != "undecided here");
        }
    }
    assert!(alarms.iter().all(|it| *it <= DRAWS / 20), "{alarms:?}");
}

/// By overheads alone the two are within each other's error: what they do not share with their
/// baseline is in both.
#[test]
fn a_cost_in_a_noisy_block_is_found_by_the_pairs_of_its_arms() {
    let said = |seed, blocks| {
        let data = in_blocks(seed, 1, blocks, 1.2);
        let said = container_costs_more(&waiting(&data), Platform::Appliance);
        let (here, why) = said.text();
        (here, why.to_owned())
    };
    let found = (1..=100).filter(|seed| said(*seed, 12).0 == "agrees");
    assert!(found.count() >= 95);
    let (_, why) = said(1, 12);
    assert!(
        why.starts_with("w0, 1 CPUs, container over appliance: 1.")
            && why.ends_with("p below 0.001 (adjusted by Holm for 1 comparisons)"),
        "{why}"
    );
    let (here, why) = said(1, 7);
    assert_eq!(here, "undecided here");
    assert!(why.ends_with("7 runs are too few for a test"), "{why}");
}

#[test]
fn one_container_that_costs_more_than_a_machine_is_enough() {
    // 1.4 against 1.3 on one CPU, less on more.
    let data = made(&[("a", 10.0)]);
    let agreement = container_costs_more(&evidence(&data), Platform::Vm);
    assert_eq!(agreement.text().0, "agrees", "{agreement:?}");
    let mut data = with_another(Platform::Vm, 2.0);
    data.runs.retain(|run| run.cell.workload == "v");
    let agreement = container_costs_more(&evidence(&data), Platform::Vm);
    assert_eq!(agreement.text().0, "disagrees", "{agreement:?}");
    let translated = Evidence {
        translated: true,
        ..evidence(&data)
    };
    let judge = |evidence: &Evidence<'_>| {
        evidence.of_machines(|platform| container_costs_more(evidence, platform))
    };
    assert_eq!(judge(&translated).text().0, "undecided here");
}

#[test]
fn appliances_stand_for_machines_where_linux_guests_are_translated() {
    let mut data = with_another(Platform::Vm, 2.0);
    data.runs.retain(|run| run.cell.workload == "v");
    let guests = data
        .runs
        .iter()
        .filter(|run| run.cell.place.platform == Platform::Vm);
    let appliances: Vec<_> = guests
        .cloned()
        .map(|mut run| {
            run.cell.place.platform = Platform::Appliance;
            run
        })
        .collect();
    data.runs.extend(appliances);
    for translated in [true, false] {
        let evidence = Evidence {
            translated,
            ..evidence(&data)
        };
        let agreement = evidence.of_machines(|platform| container_costs_more(&evidence, platform));
        let (here, why) = agreement.text();
        assert_eq!(here, "disagrees", "{agreement:?}");
        assert_eq!(why.starts_with("appliances"), translated, "{agreement:?}");
    }
    // Without a Linux guest too.
    data.runs
        .retain(|run| run.cell.place.platform != Platform::Vm);
    let evidence = evidence(&data);
    let agreement = evidence.of_machines(|platform| container_costs_more(&evidence, platform));
    assert!(
        agreement.text().1.starts_with("appliances"),
        "{agreement:?}"
    );
}

#[test]
fn a_quota_that_stopped_nothing_says_nothing_of_containers() {
    let mut data = made(&[("a", 10.0)]);
    for run in &mut data.runs {
        (run.wall_s, run.observed.throttled_us) = (1.0, Some(0));
    }
    let evidence = evidence(&data);
    assert!(!evidence.holds_container("w", 1) && evidence.holds_container("w", 8));
    let agreement = container_costs_more(&evidence, Platform::Vm);
    assert!(!agreement.text().1.contains("1 CPUs"), "{agreement:?}");
}

#[test]
fn many_tasks_are_compared_with_the_one_whose_work_they_do() {
    let agreement = |factor| {
        let data = with_another(Platform::Container, factor);
        multitasking(&evidence(&data)).text().0
    };
    assert_eq!(agreement(1.5), "agrees");
    assert_eq!(agreement(0.7), "disagrees");
    assert_eq!(agreement(1.0), "undecided here");
    let alone = made(&[("a", 10.0)]);
    assert_eq!(multitasking(&evidence(&alone)).text().0, "undecided here");
}

#[test]
fn a_majority_of_clear_results_decides() {
    let vote = |votes: &[Option<bool>]| {
        let votes = votes.iter().map(|v| ("x".to_owned(), *v)).collect();
        super::vote(votes).text().0
    };
    assert_eq!(vote(&[Some(true), None]), "agrees");
    assert_eq!(vote(&[Some(false)]), "disagrees");
    assert_eq!(vote(&[Some(false), Some(true)]), "undecided here");
    assert_eq!(vote(&[None]), "undecided here");
    assert_eq!(vote(&[]), "undecided here");
}

/// A workload in containers of a host of 112 CPUs, as CPU-Pinning 2020 had, cheapest at a size.
fn add(data: &mut Data, workload: &str, cheapest: u32) {
    const CPUS: u32 = 112;
    for size in [1_u32, 2, 4, 8, 16, 32, 64] {
        let above = f64::from(size.abs_diff(cheapest).min(4)) / 10.0;
        for (platform, overhead) in [(Platform::Bare, 0.0), (Platform::Container, 0.1 + above)] {
            let place = Place::new(platform, Mode::Vanilla, size, CPUS);
            for part in 0..20 {
                let time = (1.0 + overhead) * (1.0 + f64::from(part) / 2000.0);
                let run = run("a", workload, place, Arm::Main, time);
                data.runs.push(crate::data::Run {
                    host_cpus: CPUS,
                    ..run
                });
            }
        }
    }
}

#[test]
fn each_range_of_chr_is_tested_by_workloads_of_its_own() {
    let of = |cheapest: [u32; 3]| {
        let mut data = Data::default();
        let names = ["computes", "waits", "waits_long"];
        let mut kinds = Vec::new();
        for ((name, cheapest), (kind, _)) in names.into_iter().zip(cheapest).zip(RANGES) {
            if cheapest > 0 {
                add(&mut data, name, cheapest);
                kinds.push((name.to_owned(), kind));
            }
        }
        chr(&Evidence {
            kinds,
            host_cpus: 112,
            ..evidence(&data)
        })
    };
    let agrees = of([8, 16, 32]);
    assert_eq!(agrees.text().0, "agrees", "{agrees:?}");
    for range in ["0.07 to 0.14", "0.14 to 0.28", "0.28 to 0.57"] {
        assert!(agrees.text().1.contains(range), "{agrees:?}");
    }
    // The ranges of work that waits differ: one is not the other's.
    assert_eq!(of([8, 32, 16]).text().0, "disagrees");
    let without = of([8, 16, 0]);
    assert_eq!(without.text().0, "undecided here", "{without:?}");
    assert!(without.text().1.ends_with("the range of much I/O"));
}

#[test]
fn small_hosts_have_no_chr_so_low() {
    let data = made(&[("a", 10.0)]);
    assert_eq!(chr(&evidence(&data)).text().0, "undecided here");
    let (last, _) = table(&evidence(&data)).pop().unwrap();
    let right = "The right CHR: 0.07 to 0.14 computing, 0.14 to 0.28 I/O, 0.28 to 0.57 much I/O";
    assert_eq!(last, right);
}

/// Machines that are as fast pinned as not but for `slower`, in noisy blocks.
fn pinned_and_not(seed: u64, workloads: u32, slower: f64) -> Data {
    let mut dice = tare_stats::SplitMix64::new(seed);
    let mut data = Data::default();
    for workload in 0..workloads {
        for block in 0..14 {
            let noise = 1.0 + dice.below(200) as f64 / 100.0;
            for (mode, factor) in [(Mode::Vanilla, slower), (Mode::Pinned, 1.0)] {
                let place = Place::new(Platform::Vm, mode, 1, 8);
                let own = 1.0 + dice.below(50) as f64 / 100.0;
                let name = format!("w{workload}");
                let mut run = run("a", &name, place, Arm::Main, noise * own * factor);
                run.block = Some(block);
                data.runs.push(run);
            }
        }
    }
    data
}

#[test]
fn of_many_workloads_that_pinning_does_not_change_few_seem_to_gain_or_lose() {
    const DRAWS: usize = 200;
    let here = |seed, workloads, slower| {
        let data = pinned_and_not(seed, workloads, slower);
        vm_pin(&evidence(&data), Platform::Vm).text().0
    };
    let alarms = (0..DRAWS as u64).filter(|seed| here(*seed, 24, 1.0) == "disagrees");
    assert!(alarms.count() <= DRAWS / 20);
    let found = (0..50).filter(|seed| here(*seed, 1, 1.3) == "disagrees");
    assert!(found.count() >= 48);
}
