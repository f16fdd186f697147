//! Findings about processes that work for a machine.

use super::*;

#[test]
fn a_helper_s_remedy_is_about_what_it_does() {
    let remedy = |name: &str| {
        let mut load = idle();
        load.threads.push(thread(name, Role::Helper, 0.2));
        let found = first(&load);
        assert_eq!(found.cause, Cause::Helpers, "{found:?}");
        assert!(found.what.starts_with(&format!("helper process {name}")));
        found.remedy
    };
    for network in ["passt.avx2", "slirp4netns"] {
        let remedy = remedy(network);
        assert!(
            remedy.contains("packets") && remedy.contains("vhost-net"),
            "{remedy}"
        );
    }
    let files = remedy("virtiofsd");
    assert!(files.contains("--cache=always"), "{files}");
    for disk in ["tare-vhost", "qemu-storage-da"] {
        let remedy = remedy(disk);
        assert!(remedy.contains("larger requests"), "{remedy}");
        assert!(!remedy.contains("packets"), "{remedy}");
    }
}
