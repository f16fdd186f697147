//! Whether the kernel unpacked all of the initramfs: where memory ends it stops, says so on a console that
//! may be quiet, and starts the first process with what there is (Linux `init/initramfs.c`,
//! `do_populate_rootfs`). Sizes do not tell: it gives a file its size before its content.

use std::path::Path;

use tare_init::END_FILE;

/// Fails if the archive's last file is missing below `root`.
pub(crate) fn check(root: &Path) -> Result<(), String> {
    if root.join(END_FILE).is_file() {
        return Ok(());
    }
    Err(
        "the root was not unpacked to its end: the guest has too little memory for it (--memory), or needs a \
         disk (--root-disk)"
            .to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_root_that_lacks_its_end_is_noticed() {
        let dir = std::env::temp_dir().join(format!("tare-init-end-{}", std::process::id()));
        let end = dir.join(END_FILE);
        fs::create_dir_all(end.parent().unwrap()).unwrap();
        let problem = check(&dir).unwrap_err();
        fs::write(end, "").unwrap();
        let whole = check(&dir);
        fs::remove_dir_all(dir).unwrap();
        assert!(problem.contains("--memory"), "{problem}");
        assert_eq!(whole, Ok(()));
    }
}
