//! One compiled file of BPF programs in the kernel.

use std::error::Error;
use std::io::Read as _;

use aya::maps::{Array, HashMap, Map, MapData, MapError, PerCpuArray, RingBuf};
use aya::programs::raw_trace_point::RawTracePointLinkId;
use aya::programs::tp_btf::BtfTracePointLinkId;
use aya::programs::trace_point::TracePointLinkId;
use aya::programs::{
    BtfTracePoint, Iter, PerfEvent, Program, ProgramError, RawTracePoint, TracePoint, perf_event,
};
use aya::{Btf, Ebpf, EbpfLoader, Pod};

use super::reason;
use crate::{Source, Unavailable};

/// A compiled object, embedded with [`crate::bpf_image`].
#[derive(Clone, Copy, Debug)]
pub struct Image {
    name: &'static str,
    bytes: &'static [u8],
}

impl Image {
    /// The object called `name`; empty where the build had no compiler.
    pub const fn new(name: &'static str, bytes: &'static [u8]) -> Self {
        Self { name, bytes }
    }
}

/// Where a program is attached.
#[derive(Clone, Copy, Debug)]
pub enum Point<'a> {
    /// A raw trace point: no tracefs, arguments as the kernel passes them.
    Raw {
        /// The trace point's name without its category.
        event: &'a str,
        /// The program's function in the object.
        program: &'a str,
    },
    /// A trace point with arguments of the kernel's own types, whose fields are loaded
    /// directly.
    Typed {
        /// The trace point's name without its category.
        event: &'a str,
        /// The program's function in the object.
        program: &'a str,
    },
    /// A trace point by its record, found in tracefs.
    Record {
        /// Category, such as `kvm`.
        category: &'a str,
        /// Name.
        event: &'a str,
        /// The program's function in the object.
        program: &'a str,
    },
    /// The CPU clock of one thread, at a frequency.
    CpuClock {
        /// The thread.
        tid: u32,
        /// Samples in each second of CPU time.
        hz: u64,
        /// The program's function in the object.
        program: &'a str,
    },
}

impl<'a> Point<'a> {
    /// A raw trace point.
    pub const fn raw(event: &'a str, program: &'a str) -> Self {
        Self::Raw { event, program }
    }

    /// The program's function in the object.
    pub const fn function(&self) -> &'a str {
        match self {
            Self::Raw { program, .. }
            | Self::Typed { program, .. }
            | Self::Record { program, .. }
            | Self::CpuClock { program, .. } => program,
        }
    }

    /// A trace point with typed arguments.
    pub const fn typed(event: &'a str, program: &'a str) -> Self {
        Self::Typed { event, program }
    }
}

/// An object in the kernel.
#[derive(Debug)]
pub struct Object {
    ebpf: Ebpf,
    /// Attachments that [`Self::detach`] ends, by program.
    links: Vec<(String, Link)>,
}

/// An attachment to a trace point.
#[derive(Debug)]
enum Link {
    Raw(RawTracePointLinkId),
    Typed(BtfTracePointLinkId),
    Record(TracePointLinkId),
}

/// Bytes that one reading of an iterator takes: the kernel's buffer has 8 pages.
const ITERATOR_BYTES: usize = 1 << 15;

impl Object {
    /// Makes the object's maps and checks its programs against this kernel's types.
    /// `globals` overrides `const volatile` variables of type `u32`.
    pub fn load(image: Image, globals: &[(&'static str, u32)]) -> Result<Self, Unavailable> {
        Self::load_sized(image, globals, &[])
    }

    /// The same with other numbers of entries for some maps.
    pub(crate) fn load_sized(
        image: Image,
        globals: &[(&'static str, u32)],
        entries: &[(&'static str, u32)],
    ) -> Result<Self, Unavailable> {
        let unavailable = |why: String| Unavailable::named(Source::Bpf, image.name, why);
        if image.bytes.is_empty() {
            return Err(unavailable("built without clang".to_owned()));
        }
        let mut loader = EbpfLoader::new();
        for (name, value) in globals {
            loader.override_global(name, value, true);
        }
        for (map, entries) in entries {
            loader.map_max_entries(map, *entries);
        }
        let ebpf = loader
            .load(image.bytes)
            .map_err(|error| unavailable(reason::of(&error)))?;
        Ok(Self {
            ebpf,
            links: Vec::new(),
        })
    }

    /// Loads and attaches each program; returns those that this kernel refuses. A
    /// program may be attached at many points.
    pub fn attach(&mut self, points: &[Point<'_>]) -> Vec<Unavailable> {
        let mut types = None;
        points
            .iter()
            .filter_map(|point| self.attach_one(*point, &mut types).err())
            .collect()
    }

    /// `types` are the kernel's, once they have been read.
    fn attach_one(&mut self, point: Point<'_>, types: &mut Option<Btf>) -> Result<(), Unavailable> {
        let (source, name, function) = point.parts();
        let unavailable = |why: String| Unavailable::named(source, &name, why);
        let program = self
            .ebpf
            .program_mut(function)
            .ok_or_else(|| unavailable(format!("no program {function}")))?;
        let link = point
            .attach(program, types)
            .map_err(|error| unavailable(reason::of(&error)))?;
        self.links.extend(Some(function.to_owned()).zip(link));
        Ok(())
    }

    /// Detaches programs that are attached to trace points: they cost nothing until
    /// [`Self::attach`] attaches them again.
    pub fn detach(&mut self, wanted: impl Fn(&str) -> bool) {
        let links = std::mem::take(&mut self.links).into_iter();
        let (ended, kept) = links.partition(|(function, _)| wanted(function));
        self.links = kept;
        let ended: Vec<(String, Link)> = ended;
        for (function, link) in ended {
            if let Some(program) = self.ebpf.program_mut(&function) {
                // One that is detached already is what is wanted.
                let _ = link.detach(program);
            }
        }
    }

    /// Whether a program is attached to a trace point.
    pub(crate) fn is_attached(&self, function: &str) -> bool {
        self.links.iter().any(|(attached, _)| attached == function)
    }

    /// Loads a program that iterates over the kernel's objects of a type, such as `task`.
    pub(crate) fn load_iterator(&mut self, function: &str, over: &str) -> Result<(), Unavailable> {
        let refused = |error: &(dyn Error + 'static)| {
            Unavailable::named(Source::Bpf, function, reason::of(error))
        };
        let program = iterator(&mut self.ebpf, function).map_err(|error| refused(&error))?;
        let types = Btf::from_sys_fs().map_err(|error| refused(&error))?;
        program.load(over, &types).map_err(|error| refused(&error))
    }

    /// All that an iterator writes in one pass over its objects.
    pub(crate) fn iterate(&mut self, function: &str) -> Result<Vec<u8>, Unavailable> {
        let mut read = || -> Result<Vec<u8>, Box<dyn Error>> {
            let program = iterator(&mut self.ebpf, function)?;
            let link = program.attach()?;
            let mut file = program.take_link(link)?.into_file()?;
            let mut bytes = Vec::new();
            loop {
                let end = bytes.len();
                bytes.resize(end + ITERATOR_BYTES, 0);
                let read = file.read(&mut bytes[end..])?;
                bytes.truncate(end + read);
                if read == 0 {
                    return Ok(bytes);
                }
            }
        };
        read().map_err(|error| Unavailable::named(Source::Bpf, function, reason::of(&*error)))
    }

    /// All entries of a hash map whose keys are `K` and whose values are `V` words
    /// of 64 bits. Entries that change meanwhile may be missed or seen twice.
    pub fn entries<const K: usize, const V: usize>(&self, map: &str) -> Vec<([u64; K], [u64; V])> {
        let Some(map) = self.hash::<[u64; K], [u64; V]>(map) else {
            return Vec::new();
        };
        map.iter().filter_map(Result::ok).collect()
    }

    /// Puts an entry into a hash map with keys of 32 bits.
    pub fn insert<const V: usize>(
        &mut self,
        map: &str,
        key: u32,
        value: [u64; V],
    ) -> Result<(), Unavailable> {
        self.insert_entry(map, key, value)
    }

    /// Puts an entry into a hash map whose keys and values are numbers of 32 bits.
    pub(crate) fn insert_number(
        &mut self,
        map: &str,
        key: u32,
        value: u32,
    ) -> Result<(), Unavailable> {
        self.insert_entry(map, key, value)
    }

    /// Removes an entry of such a map.
    pub(crate) fn remove_number(&mut self, map: &str, key: u32) {
        self.remove_entries::<u32, u32>(map, [key]);
    }

    /// The value of a hash map with keys of 32 bits.
    pub fn get<const V: usize>(&self, map: &str, key: u32) -> Option<[u64; V]> {
        self.hash::<u32, [u64; V]>(map)?.get(&key, 0).ok()
    }

    /// Puts an entry into a hash map whose keys are `K` words.
    pub fn put<const K: usize, const V: usize>(
        &mut self,
        map: &str,
        key: [u64; K],
        value: [u64; V],
    ) -> Result<(), Unavailable> {
        self.insert_entry(map, key, value)
    }

    /// The value of a hash map whose keys are `K` words.
    pub fn lookup<const K: usize, const V: usize>(
        &self,
        map: &str,
        key: [u64; K],
    ) -> Option<[u64; V]> {
        self.hash::<[u64; K], [u64; V]>(map)?.get(&key, 0).ok()
    }

    /// Removes an entry of a hash map with keys of 32 bits and values of `V` words.
    pub fn remove<const V: usize>(&mut self, map: &str, key: u32) {
        self.remove_entries::<u32, [u64; V]>(map, [key]);
    }

    /// Keeps those entries of a hash map whose keys are `K` and whose values are `V`
    /// words for which `keep` says so.
    pub fn retain<const K: usize, const V: usize>(
        &mut self,
        map: &str,
        mut keep: impl FnMut(&[u64; K], &[u64; V]) -> bool,
    ) {
        let stale: Vec<_> = self
            .entries::<K, V>(map)
            .into_iter()
            .filter(|(key, value)| !keep(key, value))
            .map(|(key, _)| key)
            .collect();
        self.remove_entries::<[u64; K], [u64; V]>(map, stale);
    }

    fn insert_entry<K: Pod, V: Pod>(
        &mut self,
        map: &str,
        key: K,
        value: V,
    ) -> Result<(), Unavailable> {
        self.change(map, |data| {
            HashMap::<&mut MapData, K, V>::try_from(data)?.insert(key, value, 0)
        })
    }

    /// Changes a map.
    fn change(
        &mut self,
        map: &str,
        change: impl FnOnce(&mut Map) -> Result<(), MapError>,
    ) -> Result<(), Unavailable> {
        let unavailable = |why: String| Unavailable::named(Source::Bpf, map, why);
        let data = self.ebpf.map_mut(map);
        let data = data.ok_or_else(|| unavailable("no such map".to_owned()))?;
        change(data).map_err(|error| unavailable(reason::of(&error)))
    }

    /// Removes entries of a hash map; one may be gone already.
    fn remove_entries<K: Pod, V: Pod>(&mut self, map: &str, keys: impl IntoIterator<Item = K>) {
        if let Some(data) = self.ebpf.map_mut(map)
            && let Ok(mut hash) = HashMap::<&mut MapData, K, V>::try_from(data)
        {
            for key in keys {
                let _ = hash.remove(&key);
            }
        }
    }

    /// A word of an array.
    pub fn word(&self, map: &str, index: u32) -> Option<u64> {
        self.element(map, index).map(|[word]| word)
    }

    /// Sets an element of an array.
    pub(crate) fn set_element<const V: usize>(
        &mut self,
        map: &str,
        index: u32,
        value: [u64; V],
    ) -> Result<(), Unavailable> {
        self.change(map, |data| {
            Array::<&mut MapData, [u64; V]>::try_from(data)?.set(index, value, 0)
        })
    }

    /// An element of an array.
    pub(crate) fn element<const V: usize>(&self, map: &str, index: u32) -> Option<[u64; V]> {
        let array = Array::<&MapData, [u64; V]>::try_from(self.ebpf.map(map)?).ok()?;
        array.get(&index, 0).ok()
    }

    /// All entries of a hash map with keys of 32 bits.
    pub fn numbered<const V: usize>(&self, map: &str) -> Vec<(u32, [u64; V])> {
        let Some(map) = self.hash::<u32, [u64; V]>(map) else {
            return Vec::new();
        };
        map.iter().filter_map(Result::ok).collect()
    }

    /// An element of an array that each CPU has its own of: one value for each CPU.
    pub(crate) fn per_cpu<const V: usize>(&self, map: &str, index: u32) -> Vec<[u64; V]> {
        let map = self.ebpf.map(map);
        let array = map.and_then(|map| PerCpuArray::<&MapData, [u64; V]>::try_from(map).ok());
        let values = array.and_then(|array| array.get(&index, 0).ok());
        values.map_or_else(Vec::new, |values| values.to_vec())
    }

    /// Takes a ring buffer out of the object, to be read.
    pub(crate) fn take_ring(&mut self, map: &str) -> Result<RingBuf<MapData>, Unavailable> {
        let unavailable = |why: String| Unavailable::named(Source::Bpf, map, why);
        let data = self
            .ebpf
            .take_map(map)
            .ok_or_else(|| unavailable("no such map".to_owned()))?;
        RingBuf::try_from(data).map_err(|error| unavailable(reason::of(&error)))
    }

    /// A map, for what this type does not offer.
    pub fn map(&self, name: &str) -> Option<&aya::maps::Map> {
        self.ebpf.map(name)
    }

    /// The object's programs and maps, for what this type does not offer.
    pub(crate) fn ebpf(&mut self) -> &mut Ebpf {
        &mut self.ebpf
    }

    pub(super) fn programs(&self) -> impl Iterator<Item = (&str, &Program)> {
        self.ebpf.programs()
    }

    /// A program, to be run by a script.
    #[cfg(test)]
    pub(crate) fn program(&self, function: &str) -> Option<&Program> {
        self.ebpf.program(function)
    }

    fn hash<K: Pod, V: Pod>(&self, map: &str) -> Option<HashMap<&MapData, K, V>> {
        HashMap::try_from(self.ebpf.map(map)?).ok()
    }
}

impl Point<'_> {
    pub(crate) fn parts(&self) -> (Source, String, &str) {
        match self {
            Self::Raw { event, program } | Self::Typed { event, program } => {
                (Source::TracePoint, (*event).to_owned(), program)
            }
            Self::Record {
                category,
                event,
                program,
            } => (Source::TracePoint, format!("{category}:{event}"), program),
            Self::CpuClock { tid, program, .. } => {
                (Source::CpuClock, format!("of thread {tid}"), program)
            }
        }
    }

    /// Also returns the attachment if it can be ended.
    fn attach(
        self,
        program: &mut Program,
        types: &mut Option<Btf>,
    ) -> Result<Option<Link>, ProgramError> {
        match self {
            Self::Raw { event, .. } => {
                let program: &mut RawTracePoint = program.try_into()?;
                once(program.load())?;
                program.attach(event).map(|link| Some(Link::Raw(link)))
            }
            Self::Typed { event, .. } => {
                let program: &mut BtfTracePoint = program.try_into()?;
                let types = match types {
                    Some(types) => types,
                    None => types.insert(Btf::from_sys_fs()?),
                };
                once(program.load(event, types))?;
                program.attach().map(|link| Some(Link::Typed(link)))
            }
            Self::Record {
                category, event, ..
            } => {
                let program: &mut TracePoint = program.try_into()?;
                once(program.load())?;
                let link = program.attach(category, event);
                link.map(|link| Some(Link::Record(link)))
            }
            Self::CpuClock { tid, hz, .. } => {
                let program: &mut PerfEvent = program.try_into()?;
                once(program.load())?;
                program
                    .attach(
                        perf_event::PerfEventConfig::Software(perf_event::SoftwareEvent::CpuClock),
                        perf_event::PerfEventScope::OneProcess {
                            pid: tid,
                            cpu: None,
                        },
                        perf_event::SamplePolicy::Frequency(hz),
                        false,
                    )
                    .map(|_| None)
            }
        }
    }
}

impl Link {
    fn detach(self, program: &mut Program) -> Result<(), ProgramError> {
        match self {
            Self::Raw(link) => {
                let program: &mut RawTracePoint = program.try_into()?;
                program.detach(link)
            }
            Self::Typed(link) => {
                let program: &mut BtfTracePoint = program.try_into()?;
                program.detach(link)
            }
            Self::Record(link) => {
                let program: &mut TracePoint = program.try_into()?;
                program.detach(link)
            }
        }
    }
}

fn iterator<'a>(ebpf: &'a mut Ebpf, function: &str) -> Result<&'a mut Iter, ProgramError> {
    let program = ebpf.program_mut(function);
    program
        .ok_or(ProgramError::UnexpectedProgramType)?
        .try_into()
}

/// A program that is attached at a second point is in the kernel already.
fn once(loaded: Result<(), ProgramError>) -> Result<(), ProgramError> {
    match loaded {
        Err(ProgramError::AlreadyLoaded) => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_that_was_built_without_clang_says_so() {
        let error = Object::load(Image::new("kvm.bpf.o", &[]), &[]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "BPF kvm.bpf.o: unavailable: built without clang"
        );
    }
}
