//! What a profile must keep to, whatever its bytes. Shared by the fuzz target and the crate's replay of
//! the corpus.

use tare_profile::Profile;

/// Bytes are refused in a short sentence, or a profile that is written and read again, and merged.
pub(crate) fn judge(bytes: &[u8]) {
    let mut profile = match Profile::read(bytes) {
        Ok(profile) => profile,
        Err(error) => return assert!(error.to_string().len() < 1024, "{error}"),
    };
    assert!(profile.paths.keys().all(|path| path.starts_with('/')));
    let written = profile.to_json().expect("what was read can be written");
    assert_eq!(Profile::read(&written).expect("and read"), profile);
    let other = profile.clone();
    profile.merge(&other);
    let merged = profile.to_json().expect("what was merged can be written");
    assert!(Profile::read(&merged).is_ok(), "figures agree still");
}
