//! Replays the fuzz target's corpus.

#[path = "../../../fuzz/judges/corpus.rs"]
mod corpus;
#[path = "../../../fuzz/judges/profile.rs"]
mod profile;

#[test]
fn profiles_are_refused_or_become_themselves_again() {
    corpus::replay("profile", profile::judge);
}
