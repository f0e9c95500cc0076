//! Log pages, as nvme-cli prints them.

use std::io::{self, Write};

use unvme_spec::Status;
use unvme_spec::identify::text::Text;
use unvme_spec::log_page::{ErrorInformation, FirmwareSlot, SmartHealth};

use super::si;
use crate::value::{Fields, Value, fields};

/// Bytes of a data unit of the SMART log.
const DATA_UNIT_BYTES: u128 = 512_000;
/// Kelvins of 0 °C, in whole kelvins as the log counts.
const ZERO_CELSIUS: i32 = 273;

/// Bits of the critical warning, from bit 0 on, as `nvme smart-log -H` calls them.
const WARNINGS: [&str; 6] = [
    "Available Spare",
    "Temp. Threshold",
    "NVM subsystem Reliability",
    "Read-only",
    "Volatile mem. backup failed",
    "Persistent Mem. RO",
];

/// Text of a SMART / Health log; `explain` takes its warnings apart.
pub(crate) fn write_smart(
    out: &mut dyn Write,
    device: &str,
    nsid: u32,
    log: &SmartHealth,
    explain: bool,
) -> io::Result<()> {
    let units = |count: u128| format!("{count} ({})", si::bytes(count.saturating_mul(DATA_UNIT_BYTES)));
    writeln!(out, "Smart Log for NVME device:{device} namespace-id:{nsid:x}")?;
    writeln!(out, "critical_warning\t\t\t: {}", Value::Hex(log.critical_warning.into()))?;
    for (bit, name) in WARNINGS.iter().enumerate().filter(|_| explain) {
        writeln!(out, "      {:31}: {}", format!("{name}[{bit}]"), log.critical_warning >> bit & 1)?;
    }
    writeln!(out, "temperature\t\t\t\t: {}", temperature(log.temperature.get()))?;
    writeln!(out, "available_spare\t\t\t\t: {}%", log.available_spare)?;
    writeln!(out, "available_spare_threshold\t\t: {}%", log.available_spare_threshold)?;
    writeln!(out, "percentage_used\t\t\t\t: {}%", log.percentage_used)?;
    let summary = Value::Hex(log.endurance_group_warning.into());
    writeln!(out, "endurance group critical warning summary: {summary}")?;
    writeln!(out, "Data Units Read\t\t\t\t: {}", units(log.data_units_read.get()))?;
    writeln!(out, "Data Units Written\t\t\t: {}", units(log.data_units_written.get()))?;
    writeln!(out, "host_read_commands\t\t\t: {}", log.host_reads.get())?;
    writeln!(out, "host_write_commands\t\t\t: {}", log.host_writes.get())?;
    writeln!(out, "controller_busy_time\t\t\t: {}", log.controller_busy_time.get())?;
    writeln!(out, "power_cycles\t\t\t\t: {}", log.power_cycles.get())?;
    writeln!(out, "power_on_hours\t\t\t\t: {}", log.power_on_hours.get())?;
    writeln!(out, "unsafe_shutdowns\t\t\t: {}", log.unsafe_shutdowns.get())?;
    writeln!(out, "media_errors\t\t\t\t: {}", log.media_errors.get())?;
    writeln!(out, "num_err_log_entries\t\t\t: {}", log.error_log_entries.get())?;
    writeln!(out, "Warning Temperature Time\t\t: {}", log.warning_temperature_time)?;
    writeln!(out, "Critical Composite Temperature Time\t: {}", log.critical_temperature_time)?;
    for (index, kelvins) in sensors(log) {
        writeln!(out, "Temperature Sensor {index}           : {}", temperature(kelvins))?;
    }
    for (index, (count, seconds)) in log.thermal_transitions.iter().zip(log.thermal_time).enumerate() {
        // nvme-cli prints both counts before both times.
        if index == 0 {
            writeln!(out, "Thermal Management T1 Trans Count\t: {count}")?;
            writeln!(out, "Thermal Management T2 Trans Count\t: {}", log.thermal_transitions[1])?;
        }
        writeln!(out, "Thermal Management T{} Total Time\t: {seconds}", index + 1)?;
    }
    Ok(())
}

fn temperature(kelvins: u16) -> String {
    format!("{}°C ({kelvins} Kelvin)", i32::from(kelvins) - ZERO_CELSIUS)
}

/// Sensors that are there, numbered from 1.
fn sensors(log: &SmartHealth) -> impl Iterator<Item = (usize, u16)> {
    let sensors = log.temperature_sensors;
    sensors.into_iter().enumerate().filter(|(_, kelvins)| *kelvins != 0).map(|(i, kelvins)| (i + 1, kelvins))
}

/// A SMART / Health log for JSON.
pub(crate) fn smart(log: &SmartHealth) -> Fields {
    let mut fields = fields! {
        "critical_warning": log.critical_warning, "temperature": log.temperature.get(),
        "avail_spare": log.available_spare, "spare_thresh": log.available_spare_threshold,
        "percent_used": log.percentage_used,
        "endurance_grp_critical_warning_summary": log.endurance_group_warning,
        "data_units_read": log.data_units_read.get(), "data_units_written": log.data_units_written.get(),
        "host_read_commands": log.host_reads.get(), "host_write_commands": log.host_writes.get(),
        "controller_busy_time": log.controller_busy_time.get(), "power_cycles": log.power_cycles.get(),
        "power_on_hours": log.power_on_hours.get(), "unsafe_shutdowns": log.unsafe_shutdowns.get(),
        "media_errors": log.media_errors.get(), "num_err_log_entries": log.error_log_entries.get(),
        "warning_temp_time": log.warning_temperature_time,
        "critical_comp_time": log.critical_temperature_time,
    };
    for (index, kelvins) in sensors(log) {
        fields = fields.with(format!("temperature_sensor_{index}"), kelvins);
    }
    for (what, values) in [("trans_count", log.thermal_transitions), ("total_time", log.thermal_time)] {
        for (number, value) in (1..).zip(values) {
            fields = fields.with(format!("thm_temp{number}_{what}"), value);
        }
    }
    fields
}

const RULE: &str = ".................";

/// Text of an Error Information log.
pub(crate) fn write_errors(out: &mut dyn Write, device: &str, log: &[ErrorInformation]) -> io::Result<()> {
    writeln!(out, "Error Log Entries for device:{device} entries:{}", log.len())?;
    writeln!(out, "{RULE}")?;
    for (index, entry) in log.iter().enumerate() {
        let status = Status::from_raw(entry.status_phase >> 1);
        let status_name = status.name().unwrap_or("unknown status");
        let hex = |value: u64| Value::Hex(value);
        writeln!(out, " Entry[{index:2}]   \n{RULE}")?;
        writeln!(out, "error_count\t: {}", entry.error_count)?;
        writeln!(out, "sqid\t\t: {}", entry.sqid)?;
        writeln!(out, "cmdid\t\t: {}", hex(entry.cid.into()))?;
        writeln!(out, "status_field\t: {}({status_name})", hex(status.raw().into()))?;
        writeln!(out, "phase_tag\t: {}", hex((entry.status_phase & 1).into()))?;
        writeln!(out, "parm_err_loc\t: {}", hex(entry.parameter_location.into()))?;
        writeln!(out, "lba\t\t: {}", hex(entry.lba))?;
        writeln!(out, "nsid\t\t: {}", hex(entry.nsid.into()))?;
        writeln!(out, "vs\t\t: {}", entry.vendor_log)?;
        writeln!(out, "trtype\t\t: {}", transport(entry.trtype))?;
        writeln!(out, "cs\t\t: {}", hex(entry.command_specific))?;
        writeln!(out, "trtype_spec_info: {}", hex(entry.transport_specific.into()))?;
        writeln!(out, "{RULE}")?;
    }
    Ok(())
}

fn transport(trtype: u8) -> &'static str {
    match trtype {
        0 => "The transport type is not indicated or the error is not transport related.",
        1 => "RDMA Transport error.",
        2 => "Fibre Channel Transport error.",
        3 => "TCP Transport error.",
        254 => "Intra-host Transport error.",
        _ => "Reserved",
    }
}

/// An Error Information log for JSON.
pub(crate) fn errors(log: &[ErrorInformation]) -> Fields {
    let entries: Vec<Fields> = log
        .iter()
        .map(|entry| {
            fields! {
                "error_count": entry.error_count, "sqid": entry.sqid, "cmdid": entry.cid,
                "status_field": entry.status_phase >> 1, "phase_tag": entry.status_phase & 1,
                "parm_error_location": entry.parameter_location, "lba": entry.lba, "nsid": entry.nsid,
                "vs": entry.vendor_log, "trtype": entry.trtype, "cs": entry.command_specific,
                "trtype_spec_info": entry.transport_specific,
            }
        })
        .collect();
    fields! { "errors": entries }
}

/// Slots that hold an image: number from 1, raw bytes, text.
fn firmware_slots(log: &FirmwareSlot) -> impl Iterator<Item = (usize, u64, String)> {
    log.frs
        .iter()
        .enumerate()
        .filter(|(_, revision)| **revision != [0; 8])
        .map(|(index, revision)| (index + 1, u64::from_le_bytes(*revision), Text::new(revision).to_string()))
}

/// Text of a Firmware Slot log.
pub(crate) fn write_firmware(out: &mut dyn Write, device: &str, log: &FirmwareSlot) -> io::Result<()> {
    writeln!(out, "Firmware Log for device:{device}")?;
    writeln!(out, "afi  : {:#x}", log.afi)?;
    for (slot, raw, text) in firmware_slots(log) {
        writeln!(out, "frs{slot} : {raw:#018x} ({text})")?;
    }
    Ok(())
}

/// A Firmware Slot log for JSON.
pub(crate) fn firmware(device: &str, log: &FirmwareSlot) -> Fields {
    let mut fields = fields! { "Active Firmware Slot (afi)": log.afi };
    for (slot, raw, text) in firmware_slots(log) {
        fields = fields.with(format!("Firmware Rev Slot {slot}"), format!("{raw} ({text})"));
    }
    Fields::new().with(device, fields)
}

#[cfg(test)]
mod tests;
