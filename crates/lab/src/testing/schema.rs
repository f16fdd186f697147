//! Whether a summary is what `docs/summary.schema.json` says: the part of JSON Schema 2020-12
//! that the file uses. A keyword that is not known here fails, so none is passed over.

use std::path::Path;

use serde_json::Value;

/// Keywords that constrain nothing.
const NOTES: [&str; 4] = ["$schema", "title", "description", "format"];

/// Fails where a `summary.json` is not of the published form.
#[track_caller]
pub(crate) fn check(summary: &Value) {
    valid("summary", summary, &published()).unwrap();
}

fn published() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/summary.schema.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn valid(at: &str, value: &Value, schema: &Value) -> Result<(), String> {
    let field = |name: &str| value.get(name);
    let known = |name: &str| schema.pointer(&format!("/properties/{name}"));
    for (keyword, wanted) in schema.as_object().unwrap() {
        let holds = match keyword.as_str() {
            note if NOTES.contains(&note) => true,
            "type" => match wanted {
                Value::Array(types) => types.iter().any(|name| is(value, name)),
                name => is(value, name),
            },
            "const" => value == wanted,
            "enum" => wanted.as_array().unwrap().contains(value),
            "minimum" => value.as_f64() >= wanted.as_f64(),
            "required" => {
                let mut names = wanted.as_array().unwrap().iter();
                names.all(|name| field(name.as_str().unwrap()).is_some())
            }
            "additionalProperties" => {
                let mut names = value.as_object().unwrap().keys();
                names.all(|name| known(name).is_some())
            }
            "properties" => {
                for (name, schema) in wanted.as_object().unwrap() {
                    if let Some(value) = field(name) {
                        valid(&format!("{at}.{name}"), value, schema)?;
                    }
                }
                true
            }
            "items" => {
                for (index, value) in value.as_array().into_iter().flatten().enumerate() {
                    valid(&format!("{at}[{index}]"), value, wanted)?;
                }
                true
            }
            keyword => return Err(format!("{at}: unknown keyword {keyword}")),
        };
        if !holds {
            return Err(format!("{at} breaks {keyword} {wanted}: {value}"));
        }
    }
    Ok(())
}

fn is(value: &Value, name: &Value) -> bool {
    match name.as_str().unwrap() {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "number" => value.is_number(),
        "integer" => value.is_i64() || value.is_u64(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        name => panic!("unknown type {name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::paired_ratio;
    use crate::summary::{Differs, Effect};

    #[test]
    fn the_schema_refuses_what_is_not_a_summary() {
        let figure = paired_ratio("x", "1", &[1.1; 6]).unwrap();
        let effect = Effect::of(&figure).unwrap();
        assert_eq!(effect.differs, Differs::Above);
        let good = serde_json::json!({
            "schema": 2, "experiment": "x", "depth": "quick", "subject": null, "started": "", "duration_s": 0.0, "status": "complete",
            "revision": "", "machine": crate::host::HostFacts::default(), "figures": [figure],
            "goals": [], "effects": [effect], "not_judged": null, "failures": [],
        });
        check(&good);
        for (at, value) in [
            ("/status", Value::from("well")),
            ("/depth", Value::from("deep")),
            ("/subject", Value::from(1)),
            ("/duration_s", Value::from(-1.0)),
            ("/figures/0/n", Value::from(0.5)),
            ("/effects/0/differs", Value::from("perhaps")),
            ("/schema", Value::from(1)),
        ] {
            let mut bad = good.clone();
            *bad.pointer_mut(at).unwrap() = value;
            assert!(valid("summary", &bad, &published()).is_err(), "{at}");
        }
        let mut more = good;
        more["more"] = Value::Null;
        assert!(valid("summary", &more, &published()).is_err());
    }

    #[test]
    fn kept_runs_are_of_the_published_form() {
        let runs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/runs");
        for dir in std::fs::read_dir(runs).unwrap() {
            let file = dir.unwrap().path().join("summary.json");
            let Ok(text) = std::fs::read_to_string(file) else {
                continue;
            };
            let summary: Value = serde_json::from_str(&text).unwrap();
            check(&summary);
        }
    }
}
