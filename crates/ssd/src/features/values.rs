//! What values features can have.
#![deny(clippy::unwrap_used, clippy::indexing_slicing)]

use unvme_spec::Status;
use unvme_spec::feature::{
    Arbitration, AsyncEventConfiguration, Capabilities, ErrorRecovery, InterruptCoalescing,
    InterruptVectorConfiguration, IoCommandSetProfile, KeyValueConfiguration, PowerManagement,
    TemperatureThreshold, VolatileWriteCache, WriteAtomicity, fid,
};

const INVALID_FIELD: Status = Status::INVALID_FIELD.with_do_not_retry();

/// THSEL of an over temperature threshold.
pub(crate) const THRESHOLD_OVER: u8 = 0;
/// THSEL of an under temperature threshold.
pub(crate) const THRESHOLD_UNDER: u8 = 1;
/// TMPSEL of the composite temperature, the only one there is.
const SENSOR_COMPOSITE: u8 = 0;
/// TMPSEL of all temperatures.
pub(crate) const SENSOR_ALL: u8 = 0xf;

/// What can be done with a feature of a device with flash or without; `None` for one that is not supported.
pub(crate) fn capabilities(fid: u8, has_flash: bool) -> Option<Capabilities> {
    let fixed = Capabilities::new();
    let changeable = fixed.with_changeable(true);
    let saveable = changeable.with_saveable(true);
    Some(match fid {
        fid::ARBITRATION
        | fid::TEMPERATURE_THRESHOLD
        | fid::VOLATILE_WRITE_CACHE
        | fid::INTERRUPT_COALESCING
        | fid::INTERRUPT_VECTOR_CONFIGURATION
        | fid::WRITE_ATOMICITY
        | fid::ASYNC_EVENT_CONFIGURATION => saveable,
        fid::ERROR_RECOVERY | fid::KEY_VALUE_CONFIGURATION => saveable.with_namespace_specific(true),
        fid::POWER_MANAGEMENT
        | fid::NUMBER_OF_QUEUES
        | fid::TIMESTAMP
        | fid::HOST_BEHAVIOR_SUPPORT
        | fid::IO_COMMAND_SET_PROFILE => changeable,
        fid::FLEXIBLE_DATA_PLACEMENT if has_flash => saveable,
        fid::FLEXIBLE_DATA_PLACEMENT_EVENTS if has_flash => saveable.with_namespace_specific(true),
        // At a bus there is no keep alive timer (KAS is zero): its value is zero and stays so.
        fid::KEEP_ALIVE_TIMER => fixed,
        _ => return None,
    })
}

/// Checks dword 11 of Set Features for a feature that is nothing but that dword; returns which of the
/// feature's values it is (namespaces aside) and what to keep of it. Reserved bits are not kept. A host that
/// is reached over a network can hear of more.
pub(crate) fn checked(fid: u8, value: u32, vectors: u16, is_remote: bool) -> Result<(u32, u32), Status> {
    let kept = match fid {
        fid::ARBITRATION => {
            let new = Arbitration::from_bits(value);
            Arbitration::new()
                .with_burst(new.burst())
                .with_low_weight_z(new.low_weight_z())
                .with_medium_weight_z(new.medium_weight_z())
                .with_high_weight_z(new.high_weight_z())
                .into_bits()
        }
        fid::POWER_MANAGEMENT => {
            let new = PowerManagement::from_bits(value);
            if new.power_state() != 0 {
                return Err(INVALID_FIELD);
            }
            PowerManagement::new().with_workload_hint(new.workload_hint()).into_bits()
        }
        fid::TEMPERATURE_THRESHOLD => return checked_threshold(value),
        fid::ERROR_RECOVERY => {
            let new = ErrorRecovery::from_bits(value);
            if new.deallocated_error() {
                // NSFEAT of no namespace offers the error.
                return Err(INVALID_FIELD);
            }
            ErrorRecovery::new().with_time_limit(new.time_limit()).into_bits()
        }
        fid::INTERRUPT_VECTOR_CONFIGURATION => return checked_vector(value, vectors),
        fid::ASYNC_EVENT_CONFIGURATION => checked_events(value, is_remote)?,
        fid::IO_COMMAND_SET_PROFILE => {
            IoCommandSetProfile::new().with_index(IoCommandSetProfile::from_bits(value).index()).into_bits()
        }
        fid::KEY_VALUE_CONFIGURATION => {
            let new = KeyValueConfiguration::from_bits(value);
            KeyValueConfiguration::new()
                .with_delete_missing_is_error(new.delete_missing_is_error())
                .into_bits()
        }
        fid::VOLATILE_WRITE_CACHE => {
            VolatileWriteCache::new().with_enabled(VolatileWriteCache::from_bits(value).enabled()).into_bits()
        }
        fid::INTERRUPT_COALESCING => {
            let new = InterruptCoalescing::from_bits(value);
            InterruptCoalescing::new().with_threshold_z(new.threshold_z()).with_time(new.time()).into_bits()
        }
        fid::WRITE_ATOMICITY => WriteAtomicity::new()
            .with_disable_normal(WriteAtomicity::from_bits(value).disable_normal())
            .into_bits(),
        _ => return Err(INVALID_FIELD),
    };
    Ok((0, kept))
}

fn checked_vector(value: u32, vectors: u16) -> Result<(u32, u32), Status> {
    let new = InterruptVectorConfiguration::from_bits(value);
    if new.vector() >= vectors {
        return Err(INVALID_FIELD);
    }
    let kept = InterruptVectorConfiguration::new()
        .with_vector(new.vector())
        .with_coalescing_disable(new.coalescing_disable());
    Ok((new.vector().into(), kept.into_bits()))
}

fn checked_events(value: u32, is_remote: bool) -> Result<u32, Status> {
    let new = AsyncEventConfiguration::from_bits(value);
    let offered = AsyncEventConfiguration::new()
        .with_smart_critical_warnings(new.smart_critical_warnings())
        .with_namespace_attributes(new.namespace_attributes())
        .with_firmware_activation(new.firmware_activation())
        .with_ana_change(new.ana_change() && is_remote);
    // OAES does not offer the others.
    if offered == new { Ok(value) } else { Err(INVALID_FIELD) }
}

fn checked_threshold(value: u32) -> Result<(u32, u32), Status> {
    let new = TemperatureThreshold::from_bits(value);
    let index = threshold_index(new)?;
    Ok((index.into_bits(), index.with_kelvins(new.kelvins()).into_bits()))
}

/// Which threshold a value is for. There are no sensors besides the composite temperature, and no hysteresis.
pub(crate) fn threshold_index(value: TemperatureThreshold) -> Result<TemperatureThreshold, Status> {
    let sensor = matches!(value.sensor(), SENSOR_COMPOSITE | SENSOR_ALL);
    let kind = matches!(value.kind(), THRESHOLD_OVER | THRESHOLD_UNDER);
    if !sensor || !kind {
        return Err(INVALID_FIELD);
    }
    Ok(TemperatureThreshold::new().with_kind(value.kind()))
}
