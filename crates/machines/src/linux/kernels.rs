//! Kernels that applications are measured on: Debian's, and tailored ones, which
//! are kept in the cache by what they are made of.

use std::collections::BTreeSet;
use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use tare_rootfs::kernel::debian;
use tare_rootfs::modules::Module;
use tare_rootfs::{Cache, Logging, Tree};
use tare_tailor::choose::choose;
use tare_tailor::cut::Cut;
use tare_tailor::kconfig::{self, Config};
use tare_tailor::kernel::{Kernel, KernelBuilder, LOCK, MakeError, Patching};
use tare_tailor::lock::{self, Lock};
use tare_tailor::mapping::Symbol;
use tare_tailor::source::{Series, Source, Sources};
use tare_tailor::spec::KernelSpec;
use tare_tailor::starter::{Starter, bounds};
use tare_tailor::target::{Part, Target};
use tare_tailor::toolchain::Toolchain;

use super::LinuxError;
use super::catalog::App;
use super::machine;
use tare_load::interrupt::Interrupt;

/// The cache's directory of kernels made for the lab.
const ENTRIES: &str = "lab-kernels";
/// The image, in a kernel's directory.
pub(super) const IMAGE: &str = "bzImage";
/// What Tare's first process needs besides the application: its signals come
/// over a pair of UNIX sockets, its locks are futexes.
const FIRST_PROCESS: [&str; 3] = ["NET", "UNIX", "FUTEX"];

/// A kernel to boot.
#[derive(Clone, Debug)]
pub struct Bootable {
    /// Its name in figures.
    pub name: String,
    /// The compressed image.
    pub image: PathBuf,
    /// Modules that its devices need.
    pub modules: Vec<Module>,
    /// Its configuration.
    pub config: Config,
    /// Bytes of the image.
    pub image_bytes: u64,
    /// Boot parameters besides those of every guest.
    pub parameters: &'static str,
}

/// Debian's cloud kernel.
pub fn debian(cache: &Cache) -> Result<Bootable, LinuxError> {
    let kernel = debian::find_or_obtain(cache)?;
    let modules = kernel.machine_modules(&[])?;
    Ok(Bootable {
        name: "debian".to_owned(),
        config: configuration(&kernel.config)?,
        image_bytes: bytes(&kernel.image)?,
        parameters: "",
        image: kernel.image,
        modules,
    })
}

/// The order for an application with these cuts.
pub(crate) fn order(app: &App, cuts: &BTreeSet<Cut>) -> Result<KernelSpec, LinuxError> {
    let mut order = KernelSpec::new(app.profile()?, Target::Qemu);
    order.cuts = cuts.clone();
    if !cuts.contains(&Cut::Smp) {
        // The guest has one CPU; a kernel that is not cut could drive more.
        order.parts.insert(Part::SeveralCpus);
    }
    for symbol in FIRST_PROCESS.into_iter().filter_map(Symbol::new) {
        order.add.insert(symbol, "Tare's first process".to_owned());
    }
    Ok(order)
}

/// Whether two sets of cuts make one kernel: something else asks for what one of
/// them would take.
pub fn is_same(app: &App, one: &BTreeSet<Cut>, other: &BTreeSet<Cut>) -> Result<bool, LinuxError> {
    let ingredients = |cuts: &BTreeSet<Cut>| {
        let symbols = choose(&order(app, cuts)?).symbols.into_keys();
        let of_source = cuts
            .iter()
            .map(|cut| (cut.patch(Series::V6_1), cut.flag(), *cut == Cut::Pgo))
            .filter(|it| *it != (None, None, false));
        Ok::<_, LinuxError>((symbols.collect::<Vec<_>>(), of_source.collect::<Vec<_>>()))
    };
    Ok(ingredients(one)? == ingredients(other)?)
}

/// The cache's directory of kernels made for the lab.
pub(super) fn entries(cache: &Cache) -> PathBuf {
    cache.dir().join(ENTRIES)
}

/// The kernel that was made in a directory, if it is whole and still what its lock says.
pub(super) fn at(place: &Path, name: &str) -> Option<Bootable> {
    let lock = Lock::read(&place.join(LOCK)).ok()?;
    let image = place.join(IMAGE);
    let same = lock::sha256_of_file(&image).ok()? == lock.image_sha256;
    same.then(|| Bootable {
        name: name.to_owned(),
        image,
        modules: Vec::new(),
        config: Config::read(&(lock.config.join("\n") + "\n")),
        image_bytes: lock.image_bytes,
        parameters: "",
    })
}

/// A tailored kernel that was made before, with the sources that are here already.
pub fn kept_for(
    app: &App,
    name: &str,
    cuts: &BTreeSet<Cut>,
    cache: &Cache,
) -> Result<Bootable, LinuxError> {
    let none = || LinuxError::NotKept {
        app: app.name.clone(),
    };
    let entries = entries(cache);
    if !entries.is_dir() {
        return Err(none());
    }
    let order = order(app, cuts)?;
    let key = key(app, &order, &sources(cache)?, &toolchain(name, &order)?);
    at(&entries.join(key), name).ok_or_else(none)
}

/// The compilers of a kernel request.
pub(super) fn toolchain(name: &str, order: &KernelSpec) -> Result<Toolchain, LinuxError> {
    Toolchain::of(&order.cuts).map_err(|error| not_made(name, error.into()))
}

/// The directory of a kernel request: another source, list of symbols, cut,
/// patch or compiler is another kernel.
pub(super) fn key(
    app: &App,
    order: &KernelSpec,
    sources: &Sources,
    toolchain: &Toolchain,
) -> String {
    let choice = choose(order);
    let symbols: Vec<&str> = choice.symbols.keys().map(Symbol::name).collect();
    let cuts: Vec<&str> = order.cuts.iter().map(|cut| cut.name()).collect();
    let patches: String = order
        .cuts
        .iter()
        .filter_map(|cut| cut.patch(order.series))
        .collect();
    let tools = toolchain.versions();
    let sources = &sources.sha256;
    let (values, where_known) = (&choice.values, &choice.where_known);
    let all =
        format!("{sources} {symbols:?} {values:?} {where_known:?} {cuts:?} {tools:?} {patches}");
    format!("{}-{}", app.name, &lock::sha256(all.as_bytes())[..12])
}

/// The directory of objects that a kernel shares with those of about as many cuts.
fn objects(cuts: &BTreeSet<Cut>) -> &'static str {
    if cuts.contains(&Cut::Pgo) {
        "objects-optimized"
    } else if cuts.len() < Cut::by_default().len() {
        "objects-few-cuts"
    } else {
        "objects-many-cuts"
    }
}

/// Makes it in a directory whose objects many kernels of the lab share, so that
/// only what another configuration or patch changes is compiled again.
pub(super) fn make(
    name: &str,
    order: &KernelSpec,
    place: &Path,
    cache: &Cache,
    interrupt: &Interrupt,
) -> Result<(), LinuxError> {
    // gcc finds counts by the path of the sources.
    let patching = match order.counted {
        Some(_) => Patching::Cached,
        None => Patching::InPlace,
    };
    let builder = builder(cache, patching)?;
    let objects = entries(cache).join(objects(&order.cuts));
    let goes_on = || interrupt.check().is_ok();
    let made = builder.make(order, &objects, &goes_on, |_| {});
    store(name, made, &objects, place, interrupt)
}

/// What makes kernels of the sources that are known.
pub(super) fn builder(cache: &Cache, patching: Patching) -> Result<KernelBuilder, LinuxError> {
    Ok(KernelBuilder {
        cache: cache.clone(),
        source: Source::default(),
        jobs: std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN),
        patching,
        starter: Starter::Tare(machine::this_program()?, bounds()),
    })
}

/// Stores what was made in `objects` at its place among the kernels.
pub(super) fn store(
    name: &str,
    made: Result<Kernel, MakeError>,
    objects: &Path,
    place: &Path,
    interrupt: &Interrupt,
) -> Result<(), LinuxError> {
    // An end on request is not a failure of the build.
    interrupt.check()?;
    let kernel = made.map_err(|source| not_made(name, source))?;
    fs::create_dir_all(place).map_err(LinuxError::file(place))?;
    for (from, to) in [
        (kernel.image.bz_image, IMAGE),
        // Last: a lock without its image is invalid.
        (objects.join(LOCK), LOCK),
    ] {
        let to = place.join(to);
        fs::copy(&from, &to).map_err(LinuxError::file(&to))?;
    }
    Ok(())
}

/// What kernels are made of.
pub fn sources(cache: &Cache) -> Result<Sources, LinuxError> {
    let sources = Source::default().obtain(cache);
    sources.map_err(|error| not_made("sources", MakeError::Obtain(error)))
}

/// A configuration that others are compared with, and which is not built.
#[derive(Clone, Copy, Debug)]
pub enum Yardstick {
    /// A general guest: the kernel's own defaults with what it lists for guests
    /// of KVM (`kernel/configs/kvm_guest.config`).
    DefconfigKvm,
    /// The least that is on in any kernel for this processor, whatever one asks.
    Floor,
}

impl Yardstick {
    /// Its name in figures.
    pub const fn name(self) -> &'static str {
        match self {
            Self::DefconfigKvm => "defconfig-kvm",
            Self::Floor => "floor",
        }
    }

    /// Has the kernel's scripts solve it.
    pub fn configuration(
        self,
        sources: &Sources,
        interrupt: &Interrupt,
    ) -> Result<Config, LinuxError> {
        let objects = tempfile::tempdir().map_err(LinuxError::file("a temporary directory"))?;
        let starter = Starter::Tare(machine::this_program()?, bounds());
        let (targets, lines): (&[&str], _) = match self {
            Self::DefconfigKvm => (&["x86_64_defconfig", "kvm_guest.config"], None),
            Self::Floor => (&["allnoconfig"], Some("CONFIG_64BIT=y\nCONFIG_EXPERT=y\n")),
        };
        let goes_on = || interrupt.check().is_ok();
        let (tree, objects) = (&sources.tree, objects.path());
        let made = kconfig::made_by(&starter, tree, objects, targets, lines, &goes_on);
        interrupt.check()?;
        made.map_err(|error| not_made(self.name(), MakeError::Kconfig(error)))
    }
}

fn configuration(path: &Path) -> Result<Config, LinuxError> {
    let text = fs::read_to_string(path).map_err(LinuxError::file(path))?;
    Ok(Config::read(&text))
}

pub(super) fn not_made(kernel: &str, source: MakeError) -> LinuxError {
    LinuxError::Make {
        kernel: kernel.to_owned(),
        source: Box::new(source),
    }
}

fn bytes(path: &Path) -> Result<u64, LinuxError> {
    let metadata = fs::metadata(path).map_err(LinuxError::file(path))?;
    Ok(metadata.len())
}

/// A guest's files with the first process, which may send the kernel's `counts`, and the modules of this
/// kernel.
pub(crate) fn with_init(
    tree: &Tree,
    command: &[String],
    kernel: &Bootable,
    counts: Logging,
) -> Result<Tree, LinuxError> {
    let task = tare_rootfs::Task {
        command: command.to_vec(),
        counts,
        ..tare_rootfs::Task::default()
    };
    let init = tare_rootfs::guest::find_init()?;
    let mut tree = tree.clone();
    tare_rootfs::guest::add_init(&mut tree, task, &kernel.modules, &init)?;
    Ok(tree)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linux::catalog;

    /// A tree of a few files.
    fn sources(dir: &Path, text: &str) -> Sources {
        fs::create_dir_all(dir.join("scripts/kconfig")).unwrap();
        fs::write(dir.join("Kconfig"), text).unwrap();
        let makefile = "VERSION = 6\nPATCHLEVEL = 1\nSUBLEVEL = 1\n";
        fs::write(dir.join("Makefile"), makefile).unwrap();
        let cache = Cache::at(dir.join("cache"));
        Source::Directory(dir.to_owned()).obtain(&cache).unwrap()
    }

    #[test]
    fn another_cut_or_source_is_another_kernel() {
        let app = catalog::find("lighttpd").unwrap();
        let dir = tempfile::tempdir().unwrap();
        let [one, other] = ["a", "b"].map(|text| sources(dir.path(), text));
        let key_of = |cuts: &BTreeSet<Cut>, of: &Sources| {
            key(&app, &order(&app, cuts).unwrap(), of, &Toolchain::Gnu)
        };
        let default = Cut::by_default();
        let mut more = default.clone();
        more.insert(Cut::Dac);
        assert_eq!(key_of(&default, &one), key_of(&default, &one.clone()));
        assert_ne!(key_of(&default, &one), key_of(&more, &one));
        assert_ne!(key_of(&default, &one), key_of(&default, &other));
    }

    #[test]
    fn a_cut_that_takes_nothing_makes_the_same_kernel() {
        let app = catalog::find("lighttpd").unwrap();
        let all = Cut::all_trusting();
        let none = BTreeSet::new();
        let alone = |cut: &Cut| is_same(&app, &BTreeSet::from([*cut]), &none).unwrap();
        let without = |cut: Cut| all.iter().copied().filter(|it| *it != cut).collect();
        let back = |cut: &Cut| is_same(&app, &without(*cut), &all).unwrap();
        let same = |is_same: &dyn Fn(&Cut) -> bool| {
            let cuts = Cut::ALL.into_iter().filter(is_same);
            cuts.collect::<Vec<_>>()
        };
        // Of a guest with one CPU; security modules need users.
        assert_eq!(same(&alone), [Cut::Packages, Cut::IoScheduler, Cut::Dac]);
        let flags = [Cut::Native, Cut::O3, Cut::ThinLto, Cut::Pgo];
        let taken = same(&back).into_iter().filter(|cut| !flags.contains(cut));
        assert_eq!(taken.collect::<Vec<_>>(), [Cut::Packages, Cut::IoScheduler]);
    }

    #[test]
    fn an_image_that_its_lock_does_not_know_is_not_taken() {
        let place = tempfile::tempdir().unwrap();
        assert!(at(place.path(), "x").is_none());
        fs::write(place.path().join(IMAGE), "image").unwrap();
        fs::write(place.path().join(LOCK), "{}").unwrap();
        assert!(at(place.path(), "x").is_none());
    }
}
