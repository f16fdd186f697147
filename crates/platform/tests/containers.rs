//! Containers of both engines around a small root. Needs root, runc and podman.

#![allow(clippy::unwrap_used)]

mod support;

use std::time::Duration;

use support::{Blind, Stage, step};
use tare_platform::cgroup;
use tare_platform::container::{Containers, Limits};
use tare_platform::container_engine::ContainerEngine;
use tare_platform::{StepError, Timeout, Validity, Watch, pin};

const LONG: Timeout<'static> = Timeout {
    limit: Duration::from_secs(120),
    stop: &|| false,
};

/// The stage and its containers; none where the engine is not installed.
fn stage(engine: ContainerEngine, run: &str) -> Option<(Stage, Containers)> {
    let mut stage = Stage::new(run, "true")?;
    for program in ["runc", engine.name()] {
        if !tare_vmtest::installed(program) {
            tare_vmtest::lacks(format!("{program} is not installed"));
            return None;
        }
    }
    let containers = Containers::new(&mut stage.journal, engine, stage.dir.path()).unwrap();
    Some((stage, containers))
}

/// Groups of this process's containers, wherever runtimes made them.
fn groups() -> Vec<std::path::PathBuf> {
    let name = format!("tare-lab-{}", std::process::id());
    let all = cgroup::everywhere(&name).into_iter();
    all.filter(|dir| dir.exists()).collect()
}

/// One test: containers are named by the process that starts them.
#[test]
fn a_container_of_either_engine_keeps_to_its_cpus_and_leaves_nothing() {
    for engine in [ContainerEngine::Runc, ContainerEngine::Podman] {
        let Some((stage, containers)) = stage(engine, "nproc > metric") else {
            continue;
        };
        let (tree, scratch) = (stage.tree(), stage.scratch());
        containers.try_out(&tree, &scratch, LONG).unwrap();
        let last = *pin::allowed().last().unwrap();
        let limits = Limits {
            cpus: Some(last.to_string()),
            quota_us: Some(100_000),
        };
        let step = step("output");
        let waiting = containers
            .ready(&tree, &scratch, &limits, &step, LONG)
            .unwrap();
        let report = containers.run(waiting, &step, &mut Blind).unwrap();
        assert_eq!(
            report.validity,
            Validity::Valid(1.0),
            "{engine:?}: {report:?}"
        );
        let nowhere = Limits {
            cpus: Some("1023".to_owned()),
            quota_us: None,
        };
        let said = match containers.ready(&tree, &scratch, &nowhere, &step, LONG) {
            Ok(waiting) => containers.run(waiting, &step, &mut Blind).unwrap_err(),
            Err(error) => error,
        };
        assert!(said.to_string().contains("1023"), "{said}");
        std::fs::remove_file(tree.join("bin/true")).unwrap();
        let tried = containers.try_out(&tree, &scratch, LONG);
        let said = tried.unwrap_err().to_string();
        let name = engine.name();
        assert!(
            said.starts_with(&format!("a container of {name} failed: ")),
            "{said}"
        );
        given_up(stage, &containers);
    }
}

/// Gives up once it has begun.
#[derive(Default)]
struct Impatient(bool);

impl Watch for Impatient {
    fn begin(&mut self) {
        self.0 = true;
    }
    fn end(&mut self) {}
    fn stop(&self) -> bool {
        self.0
    }
}

fn given_up(stage: Stage, containers: &Containers) {
    let scripts = stage.tree().join("tare/workloads/w");
    std::fs::write(scripts.join("run"), "setsid sleep 600 & sleep 600").unwrap();
    let step = step("output");
    let (tree, scratch) = (stage.tree(), stage.scratch());
    let waiting = containers.ready(&tree, &scratch, &Limits::default(), &step, LONG);
    let ended = containers.run(waiting.unwrap(), &step, &mut Impatient::default());
    assert!(matches!(ended, Err(StepError::GivenUp)), "{ended:?}");
    let dir = stage.dir.path().to_owned();
    drop(stage);
    assert_eq!(groups(), Vec::<std::path::PathBuf>::new());
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(!mounts.contains(&dir.display().to_string()), "{mounts}");
    let run = format!("/run/tare-lab-{}", std::process::id());
    assert!(!std::path::Path::new(&run).exists());
}
