//! Feature values, field by field, as `nvme get-feature -H` prints them.

use unvme_spec::fdp::EventSupport;
use unvme_spec::feature::{self, Select, fid};
use zerocopy::FromBytes;

use crate::value::{Fields, fields};

/// nvme-cli's name of a feature.
pub(crate) fn name(feature_id: u8) -> &'static str {
    match feature_id {
        fid::ASYNC_EVENT_CONFIGURATION => "Async Event Configuration",
        fid::HOST_BEHAVIOR_SUPPORT => "Host Behavior",
        fid::FLEXIBLE_DATA_PLACEMENT => "Flexible Direct Placement",
        fid::FLEXIBLE_DATA_PLACEMENT_EVENTS => "Flexible Direct Placement Events",
        other => fid::name(other).unwrap_or("Unknown"),
    }
}

/// What kind of value `select` asks for.
pub(crate) fn select_name(select: Select) -> &'static str {
    match select {
        Select::Current => "Current",
        Select::Default => "Default",
        Select::Saved => "Saved",
        Select::SupportedCapabilities => "Supported capabilities",
        Select::Reserved(_) => "Reserved",
    }
}

/// The capabilities of a feature that hold, in words.
pub(crate) fn capabilities(result: u32) -> Vec<&'static str> {
    let capabilities = feature::Capabilities::from_bits(result);
    let mut lines = Vec::new();
    if capabilities.saveable() {
        lines.push("Feature is saveable");
    }
    if capabilities.namespace_specific() {
        lines.push("Feature is per-namespace");
    }
    if capabilities.changeable() {
        lines.push("Feature is changeable");
    }
    lines
}

/// The fields of a value, which is in dword 0 and for some features in data; empty for a feature this does
/// not take apart.
pub(crate) fn fields(feature_id: u8, result: u32, data: &[u8]) -> Fields {
    let named = |flag: bool, yes: &'static str, no: &'static str| if flag { yes } else { no };
    let fields = Fields::new();
    match feature_id {
        fid::ARBITRATION => {
            let value = feature::Arbitration::from_bits(result);
            let burst = match value.burst() {
                7 => "No limit".to_owned(),
                power => (1u32 << power).to_string(),
            };
            fields! {
                "High Priority Weight   (HPW)": u32::from(value.high_weight_z()) + 1,
                "Medium Priority Weight (MPW)": u32::from(value.medium_weight_z()) + 1,
                "Low Priority Weight    (LPW)": u32::from(value.low_weight_z()) + 1,
                "Arbitration Burst       (AB)": burst,
            }
        }
        fid::POWER_MANAGEMENT => {
            let value = feature::PowerManagement::from_bits(result);
            fields! { "Workload Hint (WH)": value.workload_hint(), "Power State   (PS)": value.power_state() }
        }
        fid::TEMPERATURE_THRESHOLD => temperature(feature::TemperatureThreshold::from_bits(result)),
        fid::ERROR_RECOVERY => {
            let value = feature::ErrorRecovery::from_bits(result);
            fields! {
                "Deallocated or Unwritten Logical Block Error Enable (DULBE)": named(value.deallocated_error(), "Enabled", "Disabled"),
                "Time Limited Error Recovery                          (TLER)": format!("{} ms", u32::from(value.time_limit()) * 100),
            }
        }
        fid::VOLATILE_WRITE_CACHE => {
            let enabled = feature::VolatileWriteCache::from_bits(result).enabled();
            fields! { "Volatile Write Cache Enable (WCE)": named(enabled, "Enabled", "Disabled") }
        }
        fid::NUMBER_OF_QUEUES => {
            let value = feature::NumberOfQueues::from_bits(result);
            fields! {
                "Number of IO Completion Queues Allocated (NCQA)": u32::from(value.completion_z()) + 1,
                "Number of IO Submission Queues Allocated (NSQA)": u32::from(value.submission_z()) + 1,
            }
        }
        fid::INTERRUPT_COALESCING => {
            let value = feature::InterruptCoalescing::from_bits(result);
            fields! {
                "Aggregation Time     (TIME)": format!("{} usec", u32::from(value.time()) * 100),
                "Aggregation Threshold (THR)": u32::from(value.threshold_z()) + 1,
            }
        }
        fid::INTERRUPT_VECTOR_CONFIGURATION => {
            let value = feature::InterruptVectorConfiguration::from_bits(result);
            fields! {
                "Coalescing Disable (CD)": named(value.coalescing_disable(), "True", "False"),
                "Interrupt Vector   (IV)": value.vector(),
            }
        }
        fid::ASYNC_EVENT_CONFIGURATION => events(feature::AsyncEventConfiguration::from_bits(result)),
        fid::IO_COMMAND_SET_PROFILE => {
            let index = feature::IoCommandSetProfile::from_bits(result).index();
            fields! { "I/O Command Set Combination Index (IOCSCI)": index }
        }
        fid::FLEXIBLE_DATA_PLACEMENT => fdp(feature::FlexibleDataPlacement::from_bits(result)),
        fid::FLEXIBLE_DATA_PLACEMENT_EVENTS => fdp_events(result, data),
        _ => fields,
    }
}

fn fdp(value: feature::FlexibleDataPlacement) -> Fields {
    fields! {
        "Flexible Direct Placement Enable (FDPE)       ": if value.enabled() { "Yes" } else { "No" },
        "Flexible Direct Placement Configuration Index ": value.configuration(),
    }
}

/// Which events a placement handle records: as many as dword 0 says and the data holds.
fn fdp_events(count: u32, data: &[u8]) -> Fields {
    let listed = data.chunks_exact(size_of::<EventSupport>()).take(count as usize);
    listed.filter_map(|entry| EventSupport::read_from_bytes(entry).ok()).fold(
        Fields::new(),
        |fields, event| {
            let name = format!("{:53}", super::fdp::event_name(event.event_type));
            fields.with(name, if event.enabled() { "Enabled" } else { "Not Enabled" })
        },
    )
}

fn temperature(value: feature::TemperatureThreshold) -> Fields {
    let kind = match value.kind() {
        0 => "Over Temperature Threshold",
        1 => "Under Temperature Threshold",
        _ => "Reserved",
    };
    let sensor = match value.sensor() {
        0 => "Composite Temperature".to_owned(),
        sensor @ 1..=8 => format!("Temperature Sensor {sensor}"),
        15 => "All Temperature Sensors".to_owned(),
        _ => "Reserved".to_owned(),
    };
    let (kelvins, celsius) = (value.kelvins(), i32::from(value.kelvins()) - 273);
    fields! {
        "Threshold Type Select         (THSEL)": format!("{} - {kind}", value.kind()),
        "Threshold Temperature Select (TMPSEL)": format!("{} - {sensor}", value.sensor()),
        "Temperature Threshold         (TMPTH)": format!("{celsius}°C ({kelvins} Kelvin)"),
    }
}

fn events(value: feature::AsyncEventConfiguration) -> Fields {
    [
        ("Endurance Group Event Aggregate Log Change Notices        ", value.endurance_group()),
        ("LBA Status Information Notices                            ", value.lba_status()),
        ("Predictable Latency Event Aggregate Log Change Notices    ", value.predictable_latency()),
        ("Asymmetric Namespace Access Change Notices                ", value.ana_change()),
        ("Telemetry Log Notices                                     ", value.telemetry()),
        ("Firmware Activation Notices                               ", value.firmware_activation()),
        ("Namespace Attribute Notices                               ", value.namespace_attributes()),
        ("SMART / Health Critical Warnings                          ", value.smart_critical_warnings() != 0),
    ]
    .into_iter()
    .fold(Fields::new(), |fields, (name, sent)| {
        fields.with(name.trim_end(), if sent { "Send async event" } else { "Do not send async event" })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines as nvme-cli 2.3 prints them under `get-feature -H`.
    fn lines(feature_id: u8, result: u32) -> Vec<String> {
        fields(feature_id, result, &[]).0.iter().map(|(name, value)| format!("{name}: {value}")).collect()
    }

    #[test]
    fn flexible_data_placement_is_taken_apart_as_nvme_cli_does() {
        assert_eq!(
            lines(0x1d, 0x0101),
            [
                "Flexible Direct Placement Enable (FDPE)       : Yes",
                "Flexible Direct Placement Configuration Index : 1"
            ]
        );
        let shown: Vec<String> = fields(0x1e, 3, &[0, 1, 3, 0, 0x80, 1, 0x81, 1])
            .0
            .iter()
            .map(|(name, value)| format!("{name}: {value}"))
            .collect();
        assert_eq!(
            shown,
            [
                "Reclaim Unit Not Fully Written                       : Enabled",
                "Invalid Placement Identifier                         : Not Enabled",
                "Media Reallocated                                    : Enabled"
            ]
        );
        assert_eq!(fields(0x1e, 3, &[0]), Fields::new(), "what is cut short is left out");
    }

    #[test]
    fn values_are_taken_apart_as_nvme_cli_does() {
        assert_eq!(
            lines(0x07, 0x0003_0007),
            [
                "Number of IO Completion Queues Allocated (NCQA): 4",
                "Number of IO Submission Queues Allocated (NSQA): 8"
            ]
        );
        assert_eq!(
            lines(0x04, 0x0001_0157),
            [
                "Threshold Type Select         (THSEL): 0 - Over Temperature Threshold",
                "Threshold Temperature Select (TMPSEL): 1 - Temperature Sensor 1",
                "Temperature Threshold         (TMPTH): 70°C (343 Kelvin)"
            ]
        );
        assert_eq!(lines(0x06, 1), ["Volatile Write Cache Enable (WCE): Enabled"]);
        assert_eq!(lines(0x01, 0x0302_0107)[3], "Arbitration Burst       (AB): No limit");
        assert_eq!(lines(0x0b, 0x100)[6], "Namespace Attribute Notices: Send async event");
        assert!(lines(0xd0, 1).is_empty());
        assert_eq!(capabilities(5), ["Feature is saveable", "Feature is changeable"]);
    }
}
