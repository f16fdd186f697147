//! Huge pages for guest memory (`Documentation/admin-guide/mm/transhuge.rst`).

use std::fs;
use std::path::Path;

use super::finding::Finding;

const TRANSPARENT: &str = "/sys/kernel/mm/transparent_hugepage";

pub(super) fn findings() -> Vec<Finding> {
    let read = |file| fs::read_to_string(Path::new(TRANSPARENT).join(file)).ok();
    let (private, shared) = (read("enabled"), read("shmem_enabled"));
    let chosen = |text: &Option<String>| text.as_deref().and_then(chosen).map(str::to_owned);
    vec![huge_pages(
        chosen(&private).as_deref(),
        chosen(&shared).as_deref(),
    )]
}

/// The word in brackets of a file that lists its values.
fn chosen(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once('[')?;
    Some(rest.split_once(']')?.0)
}

/// Guest memory is private. QEMU gives shared memory to `tare blk`.
fn huge_pages(private: Option<&str>, shared: Option<&str>) -> Finding {
    let name = "huge pages";
    let shared = match shared {
        None | Some("never" | "deny") => "no: shmem_enabled",
        Some(shared) => shared,
    };
    match private {
        None => Finding::missing(name, "this kernel has no transparent huge pages")
            .remedy("use a kernel with CONFIG_TRANSPARENT_HUGEPAGE"),
        Some("never") => Finding::missing(name, "transparent huge pages are disabled")
            .remedy(format!("as root: echo madvise > {TRANSPARENT}/enabled")),
        Some(private) => Finding::ok(
            name,
            format!(
                "{private}: --memory SIZE,hugepages=auto; memory shared with tare blk: {shared}"
            ),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Status;
    use super::*;

    #[test]
    fn the_word_in_brackets_is_the_value() {
        assert_eq!(chosen("always [madvise] never\n"), Some("madvise"));
        assert_eq!(chosen("always madvise\n"), None);
        assert_eq!(chosen("[never"), None);
    }

    #[test]
    fn huge_pages_are_there_unless_the_host_has_none_or_switched_them_off() {
        assert_eq!(huge_pages(None, None).status, Status::Missing);
        let off = huge_pages(Some("never"), Some("never"));
        assert_eq!(off.status, Status::Missing);
        assert!(off.remedy.is_some());
        let on = huge_pages(Some("madvise"), Some("never"));
        assert_eq!(on.status, Status::Ok);
        assert!(on.value.contains("tare blk: no"), "{}", on.value);
        let both = huge_pages(Some("always"), Some("advise"));
        assert!(both.value.contains("tare blk: advise"), "{}", both.value);
    }
}
