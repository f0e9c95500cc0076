//! What the device counts, in this life and over all of them: the SMART / Health Information log (Base
//! 5.1.12.1.3).

use serde::{Deserialize, Serialize};
use unvme_spec::log_page::SmartHealth;

use crate::features::TEMPERATURE;
use crate::kv::counters::KvCounters;

/// Data units are thousands of 512 bytes (Base figure 208).
const DATA_UNIT_BYTES: u64 = 512 * 1000;
const NS_PER_HOUR: u64 = 3_600_000_000_000;
/// Available Spare Threshold: the usual one.
pub(crate) const SPARE_THRESHOLD_PERCENT: u8 = 10;

/// I/O counters of one submission queue since it was created; its owner alone writes them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct IoCounters {
    pub(crate) bytes_read: u64,
    pub(crate) bytes_written: u64,
    pub(crate) read_commands: u64,
    pub(crate) write_commands: u64,
    pub(crate) media_errors: u64,
}

impl IoCounters {
    #[inline]
    pub(crate) fn read(&mut self, bytes: u64) {
        self.read_commands += 1;
        self.bytes_read += bytes;
    }

    #[inline]
    pub(crate) fn write(&mut self, bytes: u64) {
        self.write_commands += 1;
        self.bytes_written += bytes;
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.bytes_read += other.bytes_read;
        self.bytes_written += other.bytes_written;
        self.read_commands += other.read_commands;
        self.write_commands += other.write_commands;
        self.media_errors += other.media_errors;
    }
}

/// What queues have counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    pub(crate) io: IoCounters,
    pub(crate) kv: KvCounters,
}

impl Counted {
    pub(crate) fn add(&mut self, io: &IoCounters, kv: &KvCounters) {
        self.io.add(io);
        self.kv.add(kv);
    }
}

/// What of the SMART log survives the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SmartState {
    pub(crate) bytes_read: u64,
    pub(crate) bytes_written: u64,
    pub(crate) read_commands: u64,
    pub(crate) write_commands: u64,
    pub(crate) media_errors: u64,
    power_cycles: u64,
    power_on_ns: u64,
    unsafe_shutdowns: u64,
    /// The device was shut down, or has never been started.
    shut_down: bool,
}

/// Life of the device up to this start, and how long ago that was.
pub(crate) struct Smart {
    /// Values as of this start.
    before: SmartState,
    kv_before: KvCounters,
    /// Clock readings: the first and the latest since this start.
    on: Option<(u64, u64)>,
    shut_down: bool,
}

impl Smart {
    /// Starts a power cycle.
    pub(crate) fn new(mut state: SmartState, kv: KvCounters) -> Self {
        if state.power_cycles > 0 && !state.shut_down {
            state.unsafe_shutdowns = state.unsafe_shutdowns.saturating_add(1);
        }
        state.power_cycles = state.power_cycles.saturating_add(1);
        Self { before: state, kv_before: kv, on: None, shut_down: false }
    }

    /// Everything that was written is on the media: power may go. Or the device is at work again.
    pub(crate) fn set_shut_down(&mut self, shut_down: bool) {
        self.shut_down = shut_down;
    }

    /// What [`Smart::new`] needs to continue, with the I/O of all queues since this start.
    pub(crate) fn saved(&self, io: &IoCounters) -> SmartState {
        let (first, latest) = self.on.unwrap_or_default();
        SmartState {
            bytes_read: self.before.bytes_read.saturating_add(io.bytes_read),
            bytes_written: self.before.bytes_written.saturating_add(io.bytes_written),
            read_commands: self.before.read_commands.saturating_add(io.read_commands),
            write_commands: self.before.write_commands.saturating_add(io.write_commands),
            media_errors: self.before.media_errors.saturating_add(io.media_errors),
            power_on_ns: self.before.power_on_ns.saturating_add(latest.saturating_sub(first)),
            shut_down: self.shut_down,
            ..self.before
        }
    }

    /// Key Value commands over the life of the device, with those of all queues since this start.
    pub(crate) fn kv(&self, since: &KvCounters) -> KvCounters {
        let mut all = self.kv_before;
        all.add(since);
        all
    }

    /// The device is on and it is `now`; told with every admin command, since nobody else has a clock and the
    /// time.
    pub(crate) fn tick(&mut self, now: u64) {
        let (first, latest) = self.on.unwrap_or((now, now));
        self.on = Some((first, latest.max(now)));
    }

    /// Controller Busy Time stays zero: no clock is read while commands are executed, which is short.
    pub(crate) fn log(&self, io: &IoCounters, critical_warning: u8, errors: u64, wear: &Wear) -> SmartHealth {
        let state = self.saved(io);
        let units = |bytes: u64| u128::from(bytes.div_ceil(DATA_UNIT_BYTES)).into();
        let mut log = SmartHealth::default();
        log.critical_warning = critical_warning;
        log.temperature = TEMPERATURE.into();
        log.available_spare = wear.spare_percent;
        log.available_spare_threshold = SPARE_THRESHOLD_PERCENT;
        log.percentage_used = wear.used_percent;
        log.data_units_read = units(state.bytes_read);
        log.data_units_written = units(state.bytes_written);
        log.host_reads = u128::from(state.read_commands).into();
        log.host_writes = u128::from(state.write_commands).into();
        log.power_cycles = u128::from(state.power_cycles).into();
        log.power_on_hours = u128::from(state.power_on_ns / NS_PER_HOUR).into();
        log.unsafe_shutdowns = u128::from(state.unsafe_shutdowns).into();
        log.media_errors = u128::from(state.media_errors).into();
        log.error_log_entries = u128::from(errors).into();
        log
    }
}

/// How worn the flash is.
pub(crate) struct Wear {
    /// Available Spare.
    pub(crate) spare_percent: u8,
    /// Nothing can be written any more.
    pub(crate) is_read_only: bool,
    /// Percentage Used: 255 stands for more.
    pub(crate) used_percent: u8,
    /// Bytes programmed over the life of the device.
    pub(crate) media_bytes: u64,
    /// Bytes that can be programmed over the life of the device; 0 when there is no end.
    pub(crate) endurance_bytes: u128,
}
