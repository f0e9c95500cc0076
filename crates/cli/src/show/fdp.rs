//! Flexible Data Placement, as `nvme fdp` prints it.

use std::io::{self, Write};

use unvme::fdp::{HandleStatus, Statistics};
use unvme_spec::fdp::{Configuration, Configurations, Event, EventType, Fdpa, RuhType, RuhUse};

use crate::value::{Fields, Value, fields};

/// Text of the configurations of log page 20h; `explain` takes the attributes apart.
pub(crate) fn write_configs(out: &mut dyn Write, log: &[u8], explain: bool) -> io::Result<()> {
    let several = configurations(log).count() > 1;
    for (index, Configuration { descriptor: d, handles }) in configurations(log).enumerate() {
        // One is shown exactly as nvme-cli shows it.
        if several {
            writeln!(out, "FDP Configuration[{index}]")?;
        }
        writeln!(out, "FDP Attributes: {}", Value::Hex(u8::from(d.fdpa).into()))?;
        if explain {
            write_attributes(out, d.fdpa)?;
        }
        writeln!(out, "Vendor Specific Size: {}", d.vss)?;
        writeln!(out, "Number of Reclaim Groups: {}", d.nrg)?;
        writeln!(out, "Number of Reclaim Unit Handles: {}", d.nruh)?;
        writeln!(out, "Number of Namespaces Supported: {}", d.nnss)?;
        writeln!(out, "Reclaim Unit Nominal Size: {}", d.runs)?;
        writeln!(out, "Estimated Reclaim Unit Time Limit: {}", d.erutl)?;
        writeln!(out, "Reclaim Unit Handle List:")?;
        for (number, handle) in handles.iter().enumerate() {
            writeln!(out, "  [{number}]: {}", type_name(handle.ruht))?;
        }
    }
    Ok(())
}

fn configurations(log: &[u8]) -> impl Iterator<Item = Configuration<'_>> {
    Configurations::new(log).into_iter().flatten()
}

fn write_attributes(out: &mut dyn Write, attributes: Fdpa) -> io::Result<()> {
    let (valid, cache) = (u8::from(attributes.valid()), u8::from(attributes.volatile_write_cache()));
    let not = |flag: u8| if flag == 0 { "Not " } else { "" };
    writeln!(out, "  [7:7] : {}\tFDP Configuration {}Valid", Value::Hex(valid.into()), not(valid))?;
    writeln!(out, "  [4:4] : {}\tFDP Volatile Write Cache {}Present", Value::Hex(cache.into()), not(cache))?;
    let format = Value::Hex(attributes.rgif().into());
    writeln!(out, "  [3:0] : {format}\tReclaim Group Identifier Format")
}

fn type_name(ruht: RuhType) -> String {
    ruht.name().map_or_else(|| format!("Type {:#04x}", ruht.0), str::to_owned)
}

/// The configurations for JSON.
pub(crate) fn configs(log: &[u8]) -> Fields {
    let list: Vec<Fields> = configurations(log)
        .map(|Configuration { descriptor: d, handles }| {
            let handles: Vec<Fields> =
                handles.iter().map(|handle| fields! { "ruht": handle.ruht.0 }).collect();
            fields! {
                "fdpa": u8::from(d.fdpa), "vss": d.vss, "nrg": d.nrg, "nruh": d.nruh, "maxpids": d.maxpids_z,
                "nnss": d.nnss, "runs": d.runs, "erutl": d.erutl, "ruhs": handles,
            }
        })
        .collect();
    // nvme-cli shows the count as it is in the log, zero-based.
    fields! { "n": list.len().saturating_sub(1) as u64, "configs": list }
}

/// Text of the use of reclaim unit handles.
pub(crate) fn write_usage(out: &mut dyn Write, handles: &[RuhUse]) -> io::Result<()> {
    for (index, ruha) in handles.iter().enumerate() {
        let (value, name) = (Value::Hex(ruha.0.into()), ruha.name().unwrap_or("Unknown"));
        writeln!(out, "Reclaim Unit Handle {index} Attributes: {value} ({name})")?;
    }
    Ok(())
}

/// The use of reclaim unit handles for JSON.
pub(crate) fn usage(handles: &[RuhUse]) -> Fields {
    let list: Vec<Fields> = handles.iter().map(|ruha| fields! { "ruha": ruha.0 }).collect();
    fields! { "nruh": list.len() as u64, "ruhus": list }
}

/// Text of the statistics.
pub(crate) fn write_stats(out: &mut dyn Write, log: &Statistics) -> io::Result<()> {
    writeln!(out, "Host Bytes with Metadata Written (HBMW): {}", log.host_bytes)?;
    writeln!(out, "Media Bytes with Metadata Written (MBMW): {}", log.media_bytes)?;
    writeln!(out, "Media Bytes Erased (MBE): {}", log.erased_bytes)?;
    match log.write_amplification_since(&Statistics::default()) {
        Some(ratio) => writeln!(out, "Write Amplification (MBMW / HBMW): {ratio:.3}"),
        None => writeln!(out, "Write Amplification (MBMW / HBMW): nothing was written yet"),
    }
}

/// The statistics for JSON.
pub(crate) fn stats(log: &Statistics) -> Fields {
    // nvme-cli has numbers here, and scripts divide them.
    let bytes = |count: u128| u64::try_from(count).map_or(Value::Big(count), Value::Number);
    fields! {
        "hbmw": bytes(log.host_bytes), "mbmw": bytes(log.media_bytes), "mbe": bytes(log.erased_bytes),
        "waf": log.write_amplification_since(&Statistics::default()).map(Value::Ratio),
    }
}

/// nvme-cli's name of an event type.
pub(crate) fn event_name(event: EventType) -> &'static str {
    match event {
        EventType::RU_NOT_FULLY_WRITTEN => "Reclaim Unit Not Fully Written",
        EventType::RU_TIME_LIMIT_EXCEEDED => "Reclaim Unit Active Time Limit Exceeded",
        other => other.name().unwrap_or("Unknown"),
    }
}

/// Text of events.
pub(crate) fn write_events(out: &mut dyn Write, events: &[Event]) -> io::Result<()> {
    for (index, event) in events.iter().enumerate() {
        let kind = event.event_type;
        writeln!(out, "Event[{index}]")?;
        writeln!(out, "  Event Type: {} ({})", Value::Hex(kind.0.into()), event_name(kind))?;
        writeln!(out, "  Event Timestamp: {} ms", event.timestamp.milliseconds())?;
        if let Some(pid) = event.placement_id() {
            writeln!(out, "  Placement Identifier (PID): {}", Value::Hex(pid.0.into()))?;
        }
        if let Some(nsid) = event.namespace() {
            writeln!(out, "  Namespace Identifier (NSID): {nsid}")?;
        }
        if let Some(moved) = event.media_reallocated() {
            writeln!(out, "  Number of LBAs Moved (NLBAM): {}", moved.moved())?;
            if let Some(lba) = moved.first() {
                writeln!(out, "  Logical Block Address (LBA): {}", Value::Hex(lba.0))?;
            }
        }
        if let Some((group, handle)) = event.location() {
            writeln!(out, "  Reclaim Group Identifier: {}", group.0)?;
            writeln!(out, "  Reclaim Unit Handle Identifier: {}", handle.0)?;
        }
        writeln!(out)?;
    }
    Ok(())
}

/// Events for JSON.
pub(crate) fn events(events: &[Event]) -> Fields {
    let list: Vec<Fields> = events
        .iter()
        .map(|event| {
            let moved = event.media_reallocated();
            let (group, handle) = event.location().map(|(group, handle)| (group.0, handle.0)).unzip();
            fields! {
                "type": event.event_type.0, "name": event_name(event.event_type),
                "fdpef": u8::from(event.flags), "pid": event.pid.get(),
                "timestamp": event.timestamp.milliseconds(), "nsid": event.nsid.get(),
                "nlbam": moved.map(|moved| moved.moved()), "lba": moved.and_then(|moved| moved.first()).map(|lba| lba.0),
                "rgid": group, "ruhid": handle,
            }
        })
        .collect();
    fields! { "n": list.len() as u64, "events": list }
}

/// Text of the state of a namespace's reclaim unit handles.
pub(crate) fn write_status(out: &mut dyn Write, handles: &[HandleStatus]) -> io::Result<()> {
    for handle in handles {
        writeln!(
            out,
            "Placement Identifier {}; Reclaim Unit Handle Identifier {}",
            handle.placement.0, handle.ruhid.0
        )?;
        writeln!(out, "  Estimated Active Reclaim Unit Time Remaining (EARUTR): {}", handle.seconds_left)?;
        writeln!(out, "  Reclaim Unit Available Media Writes (RUAMW): {}", handle.blocks_left)?;
        writeln!(out)?;
    }
    Ok(())
}

/// The state of a namespace's reclaim unit handles for JSON.
pub(crate) fn status(handles: &[HandleStatus]) -> Fields {
    let list: Vec<Fields> = handles
        .iter()
        .map(|handle| {
            fields! {
                "pid": handle.placement.0, "ruhid": handle.ruhid.0, "earutr": handle.seconds_left,
                "ruamw": handle.blocks_left,
            }
        })
        .collect();
    fields! { "nruhsd": list.len() as u64, "ruhss": list }
}

#[cfg(test)]
mod tests;
