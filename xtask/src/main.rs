//! Project tooling: guests, ci, tidy, licences.

fn main() {}
