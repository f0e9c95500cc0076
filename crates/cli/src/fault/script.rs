//! Rules for as long as a command runs.

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use serde_json::Value;
use unvme::Device;

use super::file::read_rules;
use super::list;

/// Rules that devices have until this is dropped.
#[derive(Debug, Default)]
pub(crate) struct Script {
    /// Devices, each with its rules' numbers.
    added: Vec<(Arc<Device>, Vec<u32>)>,
}

impl Script {
    /// Adds the rules of a file to each device. Errors: what is wrong with the file or with a rule in it, or
    /// what a device reports.
    pub(crate) fn start(file: &Path, devices: &[Arc<Device>]) -> Result<Self> {
        let text = serde_json::to_string(&read_rules(file)?)?;
        let mut script = Self::default();
        for device in devices {
            let before = numbers(device)?;
            device.add_passing_faults(&text)?;
            let new = numbers(device)?.into_iter().filter(|id| !before.contains(id)).collect();
            script.added.push((Arc::clone(device), new));
        }
        Ok(script)
    }

    /// What has come of the rules: a line for each that a device still tells about.
    pub(crate) fn outcome(&self) -> Vec<String> {
        let of_device = |(device, ids): &(Arc<Device>, Vec<u32>)| {
            // A rule may have ended the device, which is an outcome of its own.
            let listed = device.faults().ok().and_then(|text| list::rules(&text).ok()).unwrap_or_default();
            let ours = listed.iter().filter(|listed| number(listed).is_some_and(|id| ids.contains(&id)));
            let name = device.name();
            ours.map(|listed| format!("{name}: {}", list::outcome(listed))).collect::<Vec<_>>()
        };
        self.added.iter().flat_map(of_device).collect()
    }
}

impl Drop for Script {
    /// A device in this process ends with it, and its rules do; a server's goes on without them.
    fn drop(&mut self) {
        for (device, ids) in &self.added {
            for id in ids {
                // One that was unplugged by its rule does not answer, and forgets the rule with its process.
                if device.clear_faults(Some(*id)).is_err() {
                    break;
                }
            }
        }
    }
}

fn numbers(device: &Device) -> Result<Vec<u32>> {
    let listed = list::rules(&device.faults()?)?;
    Ok(listed.iter().filter_map(number).collect())
}

fn number(listed: &Value) -> Option<u32> {
    listed["rule"]["id"].as_u64().and_then(|id| u32::try_from(id).ok())
}
