//! `fault list`.

use anyhow::{Context, Result};
use clap::Args;
use serde_json::Value;

use crate::columns::{Rule, write_table};
use crate::output::Output;
use crate::target::DeviceArg;

/// Arguments of `fault list`.
#[derive(Debug, Args)]
#[command(after_help = "\
Columns: number of the rule; which commands; what happens to them; commands that matched so far;
faults so far.

Example: unvme fault list 0000:02:00.0 -o json")]
pub(crate) struct List {
    #[command(flatten)]
    device: DeviceArg,
    #[command(flatten)]
    output: Output,
}

const HEADERS: [&str; 5] = ["Rule", "Match", "Act", "Matched", "Hits"];

impl List {
    pub(crate) fn run(self) -> Result<()> {
        let listed = rules(&self.device.open()?.faults()?)?;
        let rows: Vec<[String; 5]> = listed.iter().map(row).collect();
        self.output.output.show(&listed, |out| write_table(out, &HEADERS, Rule::Dashes, &rows))
    }
}

/// The rules of a device, each an object.
pub(super) fn rules(text: &str) -> Result<Vec<Value>> {
    serde_json::from_str(text).context("the device's list of rules")
}

/// What has come of a rule, in words.
pub(super) fn outcome(listed: &Value) -> String {
    let [id, matching, act, matched, hits] = row(listed);
    format!("rule {id} ({matching}: {act}) matched {matched} and acted on {hits}")
}

fn row(listed: &Value) -> [String; 5] {
    let rule = &listed["rule"];
    let of = |value: &Value| match value.is_null() {
        true => "any command".to_owned(),
        false => words(value),
    };
    let number = |value: &Value| value.as_u64().unwrap_or(0).to_string();
    [
        number(&rule["id"]),
        of(&rule["match"]),
        words(&rule["act"]),
        number(&listed["matched"]),
        number(&listed["hits"]),
    ]
}

/// An object in a line: `opcode=write lba=100-200`.
fn words(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let word = |(key, value): (&String, &Value)| match value {
                Value::Bool(true) => key.clone(),
                Value::Object(_) => format!("{key}({})", words(value)),
                _ => format!("{key}={}", words(value)),
            };
            fields.iter().map(word).collect::<Vec<_>>().join(" ")
        }
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
