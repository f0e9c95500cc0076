//! `list-subsys`, and the long form of `list`: devices by the NVM subsystem they belong to.

use std::io::{self, Write};

use anyhow::Result;
use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use unvme::{Device, Error, OpenOptions, open};
use unvme_spec::identify::IdentifyController;
use unvme_spec::identify::text::nqn;

use super::list::{Row, all_names, rows_of};
use crate::columns::{Rule, write_table};
use crate::completion;
use crate::output::Output;
use crate::show::si;
use crate::value::{Fields, fields};

/// Arguments of `list-subsys`.
#[derive(Debug, Args)]
#[command(after_help = "\
Each controller is a path to its subsystem: one that is served to several hosts has one for each.

Example: unvme list-subsys 0000:02:00.0")]
pub(crate) struct ListSubsys {
    /// Devices; all virtual devices and known targets when left out
    #[arg(value_name = "DEVICE", add = ArgValueCompleter::new(completion::devices))]
    devices: Vec<String>,
    #[command(flatten)]
    output: Output,
}

/// An NVM subsystem and the controllers by which it was reached.
pub(super) struct Subsystem {
    name: String,
    nqn: String,
    paths: Vec<Path>,
}

/// One controller.
struct Path {
    device: String,
    transport: String,
    controller: u16,
    serial: String,
    model: String,
    firmware: String,
    namespaces: Vec<Row>,
}

impl ListSubsys {
    pub(crate) fn run(self) -> Result<()> {
        let (subsystems, failed) = gather(&self.devices)?;
        let json: Vec<Fields> = subsystems.iter().map(Subsystem::json).collect();
        self.output.output.show(fields! { "Subsystems": json }, |out| {
            for Subsystem { name, nqn, paths } in &subsystems {
                writeln!(out, "{name} - NQN={nqn}")?;
                writeln!(out, "\\")?;
                for path in paths {
                    writeln!(out, " +- {} {} live", path.device, path.transport)?;
                }
            }
            Ok(())
        })?;
        tell(failed)
    }
}

/// Opens the devices, all that are known without a name, and sorts them by subsystem. What could not be
/// opened comes with it.
pub(super) fn gather(devices: &[String]) -> Result<(Vec<Subsystem>, Vec<Error>)> {
    let mut failed = Vec::new();
    let names = if devices.is_empty() { all_names(&mut failed)? } else { devices.to_vec() };
    let mut subsystems: Vec<Subsystem> = Vec::new();
    for name in &names {
        let found = open(name, &OpenOptions::default()).and_then(|device| path_of(&device));
        match found {
            Ok((nqn, path)) => match subsystems.iter_mut().find(|subsystem| subsystem.nqn == nqn) {
                Some(subsystem) => subsystem.paths.push(path),
                None => {
                    let name = format!("nvme-subsys{}", subsystems.len());
                    subsystems.push(Subsystem { name, nqn, paths: vec![path] });
                }
            },
            Err(error) => failed.push(error),
        }
    }
    Ok((subsystems, failed))
}

/// Names what could not be opened; the last of it is the error.
pub(super) fn tell(mut failed: Vec<Error>) -> Result<()> {
    let last = failed.pop();
    for error in failed {
        writeln!(io::stderr(), "unvme: {error}")?;
    }
    last.map_or(Ok(()), |error| Err(error.into()))
}

fn path_of(device: &Device) -> Result<(String, Path), Error> {
    let data: IdentifyController = device.admin(|controller| controller.identify_controller())?;
    let identity = device.identity();
    let nqn = nqn(&data.subnqn).unwrap_or("").escape_default().to_string();
    let path = Path {
        device: device.name().to_owned(),
        transport: device.transport().to_string(),
        controller: data.cntlid,
        serial: identity.serial.clone(),
        model: identity.model.clone(),
        firmware: identity.firmware.clone(),
        namespaces: rows_of(device)?,
    };
    Ok((nqn, path))
}

impl Subsystem {
    fn json(&self) -> Fields {
        let path = |path: &Path| {
            fields! {
                "Name": path.device.as_str(), "Transport": path.transport.as_str(),
                "Address": path.device.as_str(), "State": "live",
            }
        };
        let paths: Vec<Fields> = self.paths.iter().map(path).collect();
        fields! { "Name": self.name.as_str(), "NQN": self.nqn.as_str(), "Paths": paths }
    }

    /// With all that is known of each controller.
    fn long_json(&self) -> Fields {
        let controllers: Vec<Fields> = self
            .paths
            .iter()
            .map(|path| {
                let namespaces: Vec<Fields> = path.namespaces.iter().map(Row::long_json).collect();
                fields! {
                    "Controller": path.device.as_str(), "Cntlid": path.controller.to_string(),
                    "SerialNumber": path.serial.as_str(), "ModelNumber": path.model.as_str(),
                    "Firmware": path.firmware.as_str(), "Transport": path.transport.as_str(),
                    "Address": path.device.as_str(), "Namespaces": namespaces,
                }
            })
            .collect();
        fields! {
            "Subsystem": self.name.as_str(), "SubsystemNQN": self.nqn.as_str(), "Controllers": controllers,
        }
    }
}

/// The long form of `list`, for JSON.
pub(super) fn long_json(subsystems: &[Subsystem]) -> Fields {
    let list: Vec<Fields> = subsystems.iter().map(Subsystem::long_json).collect();
    fields! { "Devices": vec![fields! { "Subsystems": list }] }
}

/// The long form of `list`: subsystems, controllers, namespaces.
pub(super) fn write_long(out: &mut dyn Write, subsystems: &[Subsystem]) -> io::Result<()> {
    let rows: Vec<_> = subsystems
        .iter()
        .map(|subsystem| {
            let names: Vec<&str> = subsystem.paths.iter().map(|path| path.device.as_str()).collect();
            [subsystem.name.clone(), subsystem.nqn.clone(), names.join(", ")]
        })
        .collect();
    write_table(out, &["Subsystem", "Subsystem-NQN", "Controllers"], Rule::Dashes, &rows)?;
    writeln!(out)?;
    let rows: Vec<_> = all_paths(subsystems)
        .map(|(subsystem, path)| {
            let namespaces: Vec<String> = path.namespaces.iter().map(|row| row.nsid.to_string()).collect();
            [
                path.device.clone(),
                path.controller.to_string(),
                path.serial.clone(),
                path.model.clone(),
                path.firmware.clone(),
                path.transport.clone(),
                subsystem.name.clone(),
                namespaces.join(", "),
            ]
        })
        .collect();
    let headers = ["Device", "Cntlid", "SN", "MN", "FR", "Transport", "Subsystem", "Namespaces"];
    write_table(out, &headers, Rule::Dashes, &rows)?;
    writeln!(out)?;
    let rows: Vec<_> = all_paths(subsystems)
        .flat_map(|(_, path)| path.namespaces.iter().map(move |row| (path, row)))
        .map(|(path, row)| {
            let usage =
                format!("{} / {}", row.used_bytes.map_or("?".into(), si::bytes), si::bytes(row.bytes));
            [path.device.clone(), row.nsid.to_string(), usage, row.format(), row.kind.to_owned()]
        })
        .collect();
    write_table(out, &["Device", "NSID", "Usage", "Format", "SSD Type"], Rule::Dashes, &rows)
}

fn all_paths(subsystems: &[Subsystem]) -> impl Iterator<Item = (&Subsystem, &Path)> {
    subsystems.iter().flat_map(|subsystem| subsystem.paths.iter().map(move |path| (subsystem, path)))
}
