//! `samples.csv`: the record as a table, a line for each number.

use std::fmt::Write as _;
use std::io::BufRead;

use serde_json::{Map, Value};

use super::csv_field;

/// Lines that hold no samples of the experiment, or counters whose differences are samples.
const PASSED_OVER: [&str; 5] = ["plan", "end", "stats", "account", "settings"];
/// Most lines: a record of a night has millions of numbers, and raw.jsonl holds them all.
const MOST: usize = 200_000;
/// Most characters of one text in `of`, and texts of a line.
const LONGEST: usize = 64;
const MOST_TEXTS: usize = 16;

/// What stands beside a sample instead of in it.
const PLACE: [&str; 7] = ["sample", "arm", "round", "cycle", "block", "record", "host"];

/// The numbers of a `raw.jsonl`, in the order in which they were measured. `order` is the
/// record's line, `block` what ran together: samples of one block can be compared in pairs.
/// `of` has the line's texts and truths, which tell its samples apart:
/// `impairment=loss_1;right=true`. A table of more than [`MOST`] lines is cut, and its last line
/// says how many it lacks: the sample `cut`, the field `lines_left_out`.
pub(crate) fn csv(record: impl BufRead) -> String {
    cut(record, MOST)
}

fn cut(record: impl BufRead, most: usize) -> String {
    let mut out = String::from("order,sample,arm,block,of,field,value\n");
    let mut rows = 0;
    for (order, line) in record.lines().enumerate() {
        let Ok(line) = line else { break };
        let Ok(Value::Object(line)) = serde_json::from_str::<Value>(&line) else {
            continue;
        };
        let word = |name: &str| line.get(name).and_then(Value::as_str).unwrap_or_default();
        let sample = word("sample");
        if PASSED_OVER.contains(&sample) {
            continue;
        }
        let block = ["block", "round", "cycle"];
        let block = block
            .iter()
            .find_map(|name| line.get(*name)?.as_u64())
            .map_or(String::new(), |block| block.to_string());
        let place = [
            order.to_string(),
            csv_field(sample),
            csv_field(word("arm")),
            block,
            csv_field(&apart(&line)),
        ]
        .join(",");
        let mut put = |field: &str, value: f64| {
            if rows < most {
                let _ = writeln!(out, "{place},{},{value}", csv_field(field));
            }
            rows += 1;
        };
        if let Some(record) = line.get("record") {
            numbers("", record, &mut put);
        }
        for (name, value) in line
            .iter()
            .filter(|(name, _)| !PLACE.contains(&name.as_str()))
        {
            numbers(name, value, &mut put);
        }
    }
    if rows > most {
        let _ = writeln!(out, ",cut,,,,lines_left_out,{}", rows - most);
    }
    out
}

/// The texts and truths of a line by their paths, as `a=x;b.c=true`.
fn apart(line: &Map<String, Value>) -> String {
    let mut found = Vec::new();
    let fields = line
        .iter()
        .filter(|(name, _)| !PLACE.contains(&name.as_str()));
    for (name, value) in fields {
        texts(name, value, &mut found);
    }
    if let Some(Value::Object(record)) = line.get("record") {
        for (name, value) in record {
            texts(name, value, &mut found);
        }
    }
    found.truncate(MOST_TEXTS);
    found.join(";")
}

/// Adds what is text or truth below `path`. Arrays are left out: they are separate samples.
fn texts(path: &str, value: &Value, found: &mut Vec<String>) {
    match value {
        Value::String(text) => {
            let plain = |c: char| if c == ';' || c.is_control() { ' ' } else { c };
            let text: String = text.chars().take(LONGEST).map(plain).collect();
            found.push(format!("{path}={text}"));
        }
        Value::Bool(truth) => found.push(format!("{path}={truth}")),
        Value::Object(fields) => {
            for (name, value) in fields {
                texts(&format!("{path}.{name}"), value, found);
            }
        }
        Value::Null | Value::Number(_) | Value::Array(_) => {}
    }
}

/// Calls `put` with the path of each number: `times.3`, `cpu.wall_ns`.
fn numbers(path: &str, value: &Value, put: &mut dyn FnMut(&str, f64)) {
    let below = |name: &str| match path {
        "" => name.to_owned(),
        path => format!("{path}.{name}"),
    };
    match value {
        Value::Number(number) => {
            if let Some(number) = number.as_f64() {
                put(path, number);
            }
        }
        Value::Object(fields) => {
            for (name, value) in fields {
                numbers(&below(name), value, put);
            }
        }
        Value::Array(items) => {
            for (index, value) in items.iter().enumerate() {
                numbers(&below(&index.to_string()), value, put);
            }
        }
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_its_block_and_its_order() {
        let record = concat!(
            "{\"sample\":\"plan\",\"plan\":{\"rounds\":2}}\n",
            "{\"sample\":\"guest\",\"arm\":\"a,b\",\"round\":1,\"record\":{\"t\":[5,7],\"ok\":true}}\n",
            "{\"sample\":\"run\",\"block\":9,\"round\":0,\"time\":0.5,\"seen\":{\"x\":1}}\n",
            "{\"sample\":\"gu",
        );
        let csv = csv(record.as_bytes());
        let lines: Vec<&str> = csv.lines().skip(1).collect();
        assert_eq!(
            lines,
            [
                "1,guest,\"a,b\",1,ok=true,t.0,5",
                "1,guest,\"a,b\",1,ok=true,t.1,7",
                "2,run,,9,,seen.x,1",
                "2,run,,9,,time,0.5",
            ]
        );
    }

    #[test]
    fn what_tells_samples_apart_is_beside_them() {
        let record = concat!(
            "{\"sample\":\"run\",\"arm\":\"main\",\"round\":3,\"impairment\":\"loss_1\",",
            "\"warm_up\":false,\"place\":{\"platform\":\"vm;x\"},\"steps\":[{\"ok\":true}],\"s\":2}\n",
        );
        let csv = csv(record.as_bytes());
        let line = csv.lines().nth(1).unwrap_or_default();
        assert_eq!(
            line,
            "0,run,main,3,impairment=loss_1;place.platform=vm x;warm_up=false,s,2"
        );
    }

    #[test]
    fn a_table_that_was_cut_says_so() {
        let record = "{\"sample\":\"run\",\"t\":[1,2,3]}\n";
        let table = cut(record.as_bytes(), 2);
        let lines: Vec<&str> = table.lines().skip(1).collect();
        assert_eq!(
            lines,
            [
                "0,run,,,,t.0,1",
                "0,run,,,,t.1,2",
                ",cut,,,,lines_left_out,1",
            ]
        );
        assert_eq!(cut(record.as_bytes(), 3).lines().count(), 4, "none is cut");
    }
}
