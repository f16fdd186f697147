//! Tailored kernels, for the cut `pgo` optimized by what the application has an instrumented kernel execute.

use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;

use tare_rootfs::Cache;
use tare_tailor::cut::Cut;
use tare_tailor::kconfig::Config;
use tare_tailor::kernel::Patching;
use tare_tailor::spec::{Counted, KernelSpec};

use super::catalog::App;
use super::kernels::{
    Bootable, IMAGE, at, builder, entries, key, make, not_made, order, sources, toolchain,
};
use super::machine::{LinuxMachine, this_program};
use super::{LinuxError, files, requests};
use tare_load::interrupt::Interrupt;

/// The objects of instrumented kernels, among the kernels.
const OBJECTS: &str = "objects-instrumented";
/// Requests of each phase, or visits.
const REQUESTS: usize = 500;

/// A tailored kernel; made if the cache has none of these ingredients.
pub fn kernel(
    app: &App,
    name: &str,
    cuts: &BTreeSet<Cut>,
    cache: &Cache,
    interrupt: &Interrupt,
) -> Result<Bootable, LinuxError> {
    let order = order(app, cuts)?;
    let sources = sources(cache)?;
    let place = entries(cache).join(key(app, &order, &sources, &toolchain(name, &order)?));
    if at(&place, name).is_none() {
        let is_optimized = order.cuts.contains(&Cut::Pgo);
        let counted = is_optimized.then(|| counted(app, name, &order, cache, interrupt));
        let order = KernelSpec {
            counted: counted.transpose()?,
            ..order
        };
        make(name, &order, &place, cache, interrupt)?;
    }
    at(&place, name).ok_or_else(|| LinuxError::Missing {
        app: app.name.clone(),
        path: place.join(IMAGE).display().to_string(),
    })
}

/// Builds a kernel's instrumented twin, and runs the application's phases on it.
fn counted(
    app: &App,
    name: &str,
    order: &KernelSpec,
    cache: &Cache,
    interrupt: &Interrupt,
) -> Result<Counted, LinuxError> {
    let objects = entries(cache).join(OBJECTS);
    let goes_on = || interrupt.check().is_ok();
    // Where the other kernel's sources are too.
    let builder = builder(cache, Patching::Cached)?;
    let made = builder.make(&order.instrumented(), &objects, &goes_on, |_| {});
    interrupt.check()?;
    let kernel = made.map_err(|error| not_made(name, error))?;
    let image = kernel.image.bz_image.clone();
    let bootable = Bootable {
        name: format!("{name}, instrumented"),
        image_bytes: fs::metadata(&image)
            .map_err(LinuxError::file(&image))?
            .len(),
        image,
        modules: Vec::new(),
        config: Config::default(),
        parameters: "",
    };
    let tree = files::tree(app, cache)?;
    let mut machine = LinuxMachine::start_counted(&this_program()?, app, &tree, &bootable)?;
    machine.serve(app, interrupt)?;
    for phase in &app.phases {
        requests::count(&machine, phase, REQUESTS, interrupt)?;
    }
    let counts = machine.execution_counts(kernel.objects(), goes_on);
    interrupt.check()?;
    Ok(Counted {
        counts: Arc::new(counts?),
        sources: kernel.sources,
    })
}
