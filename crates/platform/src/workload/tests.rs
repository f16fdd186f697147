//! Files with and without mistakes.

use std::path::Path;

use super::*;

const GOOD: &str = "about = \"x\"\nkind = \"cpu\"\ntimeout_s = 5\nfull = { N = \"1\" }\n\
                    run = \"true\"\ncheck = \"true\"\n\
                    [metric]\nunit = \"s\"\ndirection = \"lower\"\nsource = \"wall\"\n";

fn status_line(text: &str) -> String {
    parse("x", Path::new("x.toml"), text)
        .unwrap_err()
        .to_string()
}

#[test]
fn every_workload_that_comes_with_tare_is_understood() {
    let names = known();
    let mut quick = Vec::new();
    for name in &names {
        let workload = find(name).unwrap_or_else(|error| panic!("{name}: {error}"));
        if workload.unasked_from == Form::Quick && workload.quick.is_some() {
            quick.push(name.as_str());
        }
    }
    assert_eq!(quick, ["ffmpeg", "fio", "mpi-search", "redis"]);
    for expected in ["cassandra", "wordpress", "mpich-prime", "postgresql"] {
        assert!(names.iter().any(|n| n == expected), "{names:?}");
    }
}

#[test]
fn a_mistake_is_named_with_its_line_and_column() {
    for (from, to, expected) in [
        ("kind = \"cpu\"", "kind = \"cup\"", "x.toml:2:8: "),
        (
            "timeout_s = 5",
            "timeout_s = 0",
            "x.toml:3:1: timeout_s must",
        ),
        ("timeout_s = 5", "timeout_s = ", "x.toml:3:13: "),
        ("run = \"true\"", "run = \"\"", "x.toml:5:1: run is empty"),
        ("run = ", "ran = ", "x.toml:5:1: unknown field `ran`"),
        ("{ N =", "{ 'A B' =", "x.toml:4:1: 'A B' is not a variable"),
        (
            "timeout_s = 5",
            "timeout_s = 5\nappliance = \"../x\"",
            "x.toml:4:1: '../x' is not a program's name",
        ),
        (
            "timeout_s = 5",
            "timeout_s = 5\nappliance = \"x\"",
            "x.toml:6:1: run does not start the appliance's program: app x",
        ),
    ] {
        let said = status_line(&GOOD.replace(from, to));
        assert!(said.starts_with(expected), "{said}");
    }
}

#[test]
fn a_parameter_that_tare_would_replace_is_refused_by_name() {
    for name in GIVEN {
        let said = status_line(&GOOD.replace("{ N =", &format!("{{ {name} =")));
        let expected = format!("x.toml:4:1: '{name}' is set by Tare");
        assert!(said.starts_with(&expected), "{said}");
    }
    let quick = GOOD.replace("full =", "quick = { PORT = \"80\" }\nfull =");
    assert!(status_line(&quick).starts_with("x.toml:4:1: 'PORT' is set by Tare"));
    let workload = parse("x", Path::new("x.toml"), GOOD).unwrap();
    let step = crate::Step::new(&workload, Form::Full, 1).unwrap();
    let given = step.variables.keys().filter(|name| *name != "N");
    for name in given {
        assert!(GIVEN.contains(&name.as_str()), "{name} is not refused");
    }
}

#[test]
fn a_file_cannot_leave_its_directory() {
    let text = format!("{GOOD}[files]\n\"../x\" = \"\"\n");
    assert!(status_line(&text).contains("'../x' is not a file name"));
}

#[test]
fn a_form_without_parameters_leaves_the_workload_out() {
    let workload = parse("x", Path::new("x.toml"), GOOD).unwrap();
    assert_eq!(workload.parameters(Form::Quick), None);
    assert_eq!(workload.parameters(Form::Standard), Some(&workload.full));
}

#[test]
fn an_unknown_workload_lists_those_there_are() {
    let said = find("ffmpg").unwrap_err().to_string();
    assert!(
        said.contains("'ffmpg'; there are: cassandra, ffmpeg, "),
        "{said}"
    );
}

#[test]
fn a_rate_counts_as_the_time_of_one_operation() {
    let mut workload = parse("x", Path::new("x.toml"), GOOD).unwrap();
    assert_eq!(workload.time_of(2.0), 2.0);
    workload.metric.direction = Direction::Higher;
    assert_eq!(workload.time_of(2.0), 0.5);
}

/// The checks of the MPI workloads know how many primes there are; once they did not.
#[test]
fn the_primes_that_checks_expect_are_those_that_there_are() {
    const MOST: usize = 1_024_000;
    let mut is_prime = vec![true; MOST + 1];
    is_prime[..2].fill(false);
    for number in 2..1_012 {
        if is_prime[number] {
            let multiples = is_prime.iter_mut().skip(number * number).step_by(number);
            multiples.for_each(|it| *it = false);
        }
    }
    let count = |limit: usize| is_prime[..=limit].iter().filter(|it| **it).count();
    for name in ["mpi-prime", "mpich-prime"] {
        let check = find(name).unwrap().check;
        let pairs = check.split('"').filter_map(|text| {
            let (limit, primes) = text.split_once(' ')?;
            Some((limit.parse().ok()?, primes.parse::<usize>().ok()?))
        });
        let pairs: Vec<(usize, usize)> = pairs.collect();
        assert_eq!(pairs.last().map(|(limit, _)| *limit), Some(MOST), "{name}");
        for (limit, primes) in pairs {
            assert_eq!(primes, count(limit), "{name}: up to {limit}");
        }
    }
}
