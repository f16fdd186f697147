//! What the same file costs elsewhere: Tare's image in either ring, in QEMU's translator, in
//! Firecracker and Cloud Hypervisor where they are installed, and a native server on the host,
//! each at full speed on 1, 10 and 100 connections, at the rate of the source's bursts, and
//! without requests.
//!
//! Tare's image in the ring that this machine chooses has its turn in every round, so that its
//! figures have intervals; the others, which take longer, in some.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use tare_control::sentence::chain;
use tare_lab::kit::RunError;
use tare_load::requests::{Connections, Generator, Request, Schedule, Target, failed};
use tare_machines::appliance::{Appliance, ServerKind};

use super::arms::{Arm, Peer};
use super::plan::{Plan, SOURCE_RATE, ms};
use super::sample::{Boot, Line, Phase};
use super::session::{BOOT, FILE, Session, Turn, body, spec};
use crate::full_speed::carried;

/// Connections at full speed.
pub(super) const CONNECTIONS: [usize; 3] = [1, 10, 100];
/// Time limit of a request: an arm in an emulated ring opens 100 connections in seconds.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Who carries less than this on 10 connections gets 100 in a full run only: opening
/// them takes seconds.
pub(super) const SLOW_RPS: f64 = 1000.0;
/// Time of a machine's start and of opening its connections.
const START: Duration = Duration::from_millis(600);

/// Those that have their turn in a round, rotated, so that none is always first.
pub(super) fn order(plan: &Plan, round: usize) -> Vec<Peer> {
    let mut order = Peer::ALL;
    order.rotate_left(round % Peer::ALL.len());
    let is_for_all = round.is_multiple_of(plan.peers_every.max(1));
    let taking_part = order
        .into_iter()
        .filter(|peer| *peer == Peer::Ring3 || is_for_all);
    taking_part.collect()
}

/// Time that one turn is planned to take.
pub(super) fn planned(plan: &Plan) -> Duration {
    let windows = plan.capacity_ms * (CONNECTIONS.len() as u64 + 1) + plan.peer_burst_ms;
    START + ms(windows)
}

/// Why a server that need not be there is not; other errors stay.
fn missing_because(peer: Peer, result: Result<(), RunError>) -> Result<Option<String>, RunError> {
    match result {
        Ok(()) => Ok(None),
        Err(error) if peer == Peer::Ring3 => Err(error),
        Err(RunError::Appliance(error)) => Ok(Some(match error.not_installed() {
            Some(program) => format!("{program} is not installed"),
            None => chain(&error),
        })),
        Err(error) => Err(error),
    }
}

impl Session<'_, '_> {
    /// The turns of a round; those that are `missing` have none.
    pub(super) fn peers(
        &mut self,
        root: &Path,
        round: usize,
        missing: &mut BTreeSet<Peer>,
    ) -> Result<(), RunError> {
        let (progress, rounds) = (self.bench.progress, self.plan.capacity_rounds);
        for peer in order(self.plan, round) {
            if !missing.contains(&peer) {
                let about = peer.about();
                let step = format!("full speed, round {} of {rounds}: {about}", round + 1);
                progress.step(&step);
                let measured = self.peer(root, peer, round);
                if let Some(why) = missing_because(peer, measured)? {
                    self.data.unpeered.push(format!("{about}: {why}"));
                    missing.insert(peer);
                }
                self.bench.recorder.flush()?;
            }
            progress.done(planned(self.plan));
        }
        Ok(())
    }

    /// One turn: without requests, at the source's rate, then at full speed.
    fn peer(&mut self, root: &Path, peer: Peer, round: usize) -> Result<(), RunError> {
        let mut server = self.start_peer(root, peer)?;
        let server = server.as_mut();
        server.wait_serving(BOOT, self.bench.interrupt)?;
        if let Some(ring) = server.stats()?.and_then(|stats| stats.ring) {
            let boot = Boot {
                arm: peer.name().to_owned(),
                cycle: round,
            };
            self.value(boot, &peer.figure("ring"), f64::from(ring))?;
        }
        self.open(server, peer, 1)?;
        self.bench.interrupt.sleep(ms(self.plan.settle_ms))?;
        self.spends(server, peer, round, Phase::Idle)?;
        self.spends(server, peer, round, Phase::Burst)?;
        for connections in CONNECTIONS {
            let rate = self.carries(server, peer, round, connections)?;
            if connections == 10 && rate < SLOW_RPS && !self.plan.with_slow {
                break;
            }
        }
        Ok(())
    }

    fn start_peer(&mut self, root: &Path, peer: Peer) -> Result<Box<dyn Appliance>, RunError> {
        let (engine, ring) = peer.engine_and_ring();
        let turn = Turn {
            arm: Arm::Tare,
            cycle: 0,
            cpus: self.plan.cpus,
            ring,
        };
        let mut spec = spec(self.plan, root, turn, engine);
        peer.name().clone_into(&mut spec.label);
        let target = match (peer, peer.monitor()) {
            (Peer::Native, _) => ServerKind::WebServer(root),
            (_, Some(monitor)) => {
                // The file that `tare run` found by its name.
                if let Some(image) = &self.data.image {
                    spec.image = image.to_string_lossy().into_owned();
                }
                ServerKind::Elsewhere(monitor, &spec)
            }
            (_, None) => ServerKind::Image(&spec),
        };
        Ok(self.bench.executor.start(target)?)
    }

    /// A generator whose connections are open.
    fn open(
        &mut self,
        server: &mut dyn Appliance,
        peer: Peer,
        connections: usize,
    ) -> Result<Generator, RunError> {
        let target = Target {
            address: server.address(),
            path: format!("/{FILE}"),
            body: body().into(),
        };
        let mode = Connections::KeepAlive(connections);
        let generator = Generator::new(&target, mode, TIMEOUT);
        let mut generator = generator.through(server.network());
        let each_once = Schedule::Closed {
            concurrency: connections,
            until: Duration::MAX,
            count: connections,
        };
        let opened = generator.run(each_once, self.bench.interrupt)?;
        self.complain(peer, &opened, "requests failed on new connections");
        Ok(generator)
    }

    /// CPU time without requests, or at the source's rate.
    fn spends(
        &mut self,
        server: &mut dyn Appliance,
        peer: Peer,
        round: usize,
        phase: Phase,
    ) -> Result<(), RunError> {
        let mut generator = self.open(server, peer, 1)?;
        let before = server.cpu()?;
        if phase == Phase::Burst {
            let burst = Schedule::steady(SOURCE_RATE, ms(self.plan.peer_burst_ms));
            let requests = generator.run(burst, self.bench.interrupt)?;
            self.complain(peer, &requests, "requests failed in a burst");
        } else {
            self.bench.interrupt.sleep(ms(self.plan.capacity_ms))?;
        }
        let spent = server.cpu()?.since(&before);
        let line = Line::PeerCpu {
            peer,
            round,
            phase,
            spent,
        };
        Ok(self.data.keep(self.bench.recorder, line)?)
    }

    /// What it carries on some connections, requests per second.
    fn carries(
        &mut self,
        server: &mut dyn Appliance,
        peer: Peer,
        round: usize,
        connections: usize,
    ) -> Result<f64, RunError> {
        let mut generator = self.open(server, peer, connections)?;
        let load = (connections, ms(self.plan.capacity_ms));
        let carried = carried(server, &mut generator, load, self.bench.interrupt)?;
        self.complain(peer, &carried.requests, "requests failed at full speed");
        let rate = carried.rate();
        let line = Line::Carried {
            peer,
            round,
            connections,
            answered: carried.answered,
            seconds: carried.seconds,
            spent: carried.spent,
        };
        self.data.keep(self.bench.recorder, line)?;
        Ok(rate)
    }

    fn complain(&mut self, peer: Peer, requests: &[Request], what: &str) {
        let why = failed(requests, what).map(|why| format!("{}: {why}", peer.about()));
        self.data.peer_failures.extend(why);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tare_lab::kit::Depth;
    use tare_machines::appliance::ApplianceError;

    #[test]
    fn the_ring_that_is_chosen_has_enough_samples_for_an_interval() {
        for depth in [Depth::Standard, Depth::Full] {
            let plan = Plan::new(depth, None);
            let rounds = |peer: Peer| {
                let rounds = 0..plan.capacity_rounds;
                rounds
                    .filter(|round| order(&plan, *round).contains(&peer))
                    .count()
            };
            assert!(rounds(Peer::Ring3) >= 6, "{depth:?}");
            assert!(Peer::ALL.into_iter().all(|peer| rounds(peer) > 0));
        }
    }

    #[test]
    fn a_server_that_is_not_installed_is_named() {
        let missing_program = || {
            Err(RunError::Appliance(ApplianceError::Execute {
                path: "lighttpd".into(),
                source: std::io::ErrorKind::NotFound.into(),
            }))
        };
        let why = missing_because(Peer::Native, missing_program());
        assert_eq!(
            why.ok().flatten().as_deref(),
            Some("lighttpd is not installed")
        );
        assert!(missing_because(Peer::Ring3, missing_program()).is_err());
    }
}
