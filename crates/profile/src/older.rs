//! Profiles of the schema before this one.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::{Call, Features, Lookups, Phase, Profile, SCHEMA, Task};

/// The schema without paths.
pub(crate) const WITHOUT_PATHS: &str = "tare-profile/1";
/// What such a profile lacks.
const LACKS: &str = "paths are not recorded (a profile of tare-profile/1): files that were only looked at may be missing in a guest; profile the application again";

/// A profile of [`WITHOUT_PATHS`].
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Older {
    #[serde(rename = "schema")]
    _schema: String,
    phases: Vec<Phase>,
    tasks: Vec<Task>,
    calls: BTreeMap<String, Call>,
    features: Features,
    modules: Vec<String>,
    devices: Vec<String>,
    unavailable: Vec<String>,
}

impl From<Older> for Profile {
    fn from(older: Older) -> Self {
        let mut unavailable = older.unavailable;
        unavailable.push(LACKS.to_owned());
        Self {
            schema: SCHEMA.to_owned(),
            phases: older.phases,
            tasks: older.tasks,
            calls: older.calls,
            features: older.features,
            paths: Lookups::new(),
            modules: older.modules,
            devices: older.devices,
            unavailable,
        }
    }
}
