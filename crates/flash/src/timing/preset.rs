//! Devices to choose from by name.

use super::config::{TimingConfig, TimingError, TimingModel};

/// Names that [`TimingConfig::preset`] knows.
pub const PRESETS: [&str; 5] = ["none", "dram", "optane", "tlc", "qlc"];

impl TimingConfig {
    /// A device by name, one of [`PRESETS`].
    ///
    /// | name | what it stands for |
    /// |---|---|
    /// | `none` | as fast as this computer |
    /// | `dram` | memory behind four lanes of PCIe 4.0 |
    /// | `optane` | Intel Optane DC P4800X |
    /// | `tlc` | Western Digital ZN540, at its defaults |
    /// | `qlc` | what `tlc` would be with four bits to a cell |
    ///
    /// Where the figures come from:
    ///
    /// - `dram` is derived: 7000 MB/s is what such a link carries, and 2 µs are a command's way through a
    ///   controller that never waits for its media. One command in 1600 ns is what the virtual SSD keeps up
    ///   with on the wall clock, on one core of a small machine: 625 000 per second.
    /// - `optane` is its product brief: below 10 µs for reads and for writes, 2400 and 2000 MB/s, 550 000
    ///   commands per second. Divided into 1 µs for firmware and 7 µs for the media by us; no erases, no
    ///   buffer.
    /// - `tlc` is NVMeVirt's `ssd_config.h`: 8 channels of 450 MB/s with 4 dies each, two planes of 16 KiB,
    ///   three pages to a word line, 50 µs to read 4 KiB, 561 µs to program, 20 µs of firmware, 5.6 µs and
    ///   0.6 µs per 4 KiB for a write into the buffer, 3050 MB/s of link. NVMeVirt's erases take no time: the
    ///   2 ms are FEMU's default.
    /// - `qlc` is derived: 15 thresholds where TLC has 7, so 15/7 of the time to read, and four times as long
    ///   to program, coarse and then fine, in steps half as wide.
    ///
    /// Derived for both kinds of flash: a die gives up a program within 20 µs and an erase within 60 µs (what
    /// is under way when the request comes ends first: a pulse), goes on after 10 µs, and lets 16 reads go
    /// first; blocks of 24 MiB on a die. The buffer of `tlc` holds two programs for
    /// every die, as NVMeVirt's does; that of `qlc` four, without which dies would at times wait for data.
    ///
    /// Errors: [`TimingError`] that lists the names.
    pub fn preset(name: &str) -> Result<Self, TimingError> {
        Ok(Self::Model(match name {
            "none" => return Ok(Self::None),
            "dram" => DRAM,
            "optane" => OPTANE,
            "tlc" => TLC,
            "qlc" => QLC,
            _ => {
                let expected = PRESETS.join(", ");
                return Err(TimingError { key: "timing", value: name.into(), expected });
            }
        }))
    }
}

const DRAM: TimingModel = TimingModel {
    link_read_mb_s: 7000,
    link_write_mb_s: 7000,
    firmware_cores: 1,
    firmware_command_ns: 1600,
    firmware_fixed_ns: 400,
    channels: 8,
    channel_mb_s: 12_800,
    slice_ns: 1024,
    dies_per_channel: 1,
    planes: 1,
    plane_pages: 1,
    cell_bits: 1,
    read_ns: [100, 0, 0, 0],
    program_ns: 100,
    erase_ns: 0,
    block_pages: 1,
    program_suspend_ns: 0,
    erase_suspend_ns: 0,
    resume_ns: 0,
    suspends_max: 0,
    buffer_pages: 0,
    buffer_fixed_ns: 0,
    buffer_page_ns: 0,
};

const OPTANE: TimingModel = TimingModel {
    link_read_mb_s: 2400,
    link_write_mb_s: 2000,
    firmware_cores: 1,
    firmware_command_ns: 1800,
    firmware_fixed_ns: 0,
    channels: 7,
    channel_mb_s: 1600,
    dies_per_channel: 4,
    read_ns: [4000, 0, 0, 0],
    program_ns: 4000,
    ..DRAM
};

const TLC: TimingModel = TimingModel {
    link_read_mb_s: 3050,
    link_write_mb_s: 3050,
    firmware_cores: 2,
    firmware_command_ns: 2000,
    firmware_fixed_ns: 18_000,
    channels: 8,
    channel_mb_s: 450,
    slice_ns: 4096,
    dies_per_channel: 4,
    planes: 2,
    plane_pages: 4,
    cell_bits: 3,
    read_ns: [50_000, 50_000, 50_000, 0],
    program_ns: 561_000,
    erase_ns: 2_000_000,
    block_pages: 6144,
    program_suspend_ns: 20_000,
    erase_suspend_ns: 60_000,
    resume_ns: 10_000,
    suspends_max: 16,
    buffer_pages: 2 * 8 * 4 * 24,
    buffer_fixed_ns: 5600,
    buffer_page_ns: 600,
};

const QLC: TimingModel = TimingModel {
    cell_bits: 4,
    read_ns: [107_000; 4],
    program_ns: 2_244_000,
    block_pages: 6144,
    buffer_pages: 4 * 8 * 4 * 32,
    ..TLC
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_is_possible_and_another_name_lists_them() {
        for name in PRESETS {
            TimingConfig::preset(name).unwrap().check().unwrap();
        }
        assert_eq!(TimingConfig::preset("none").unwrap(), TimingConfig::default());
        let error = TimingConfig::preset("mlc").unwrap_err().to_string();
        assert_eq!(error, "timing: mlc is not possible; expected none, dram, optane, tlc, qlc");
    }

    #[test]
    fn values_at_both_ends_of_their_range_pass_and_beyond_it_are_named() {
        let refused = |change: &dyn Fn(&mut TimingModel)| {
            let mut model = TLC;
            change(&mut model);
            model.check().err().map(|error| error.to_string()).unwrap_or_default()
        };
        let channels = |count: u16| refused(&|m| m.channels = count);
        assert_eq!(channels(0), "timing.channels: 0 is not possible; expected 1 to 256");
        assert_eq!([channels(1), channels(256)], ["", ""]);
        assert_eq!(channels(257), "timing.channels: 257 is not possible; expected 1 to 256");
        let read = refused(&|m| m.read_ns[3] = 1_000_000_001);
        assert_eq!(read, "timing.read_ns: 1000000001 is not possible; expected 0 to 1000000000");
        let buffer = |pages: u32| refused(&|m| m.buffer_pages = pages);
        assert_eq!(buffer(24), "");
        assert_eq!(
            buffer(23),
            "timing.buffer_pages: 23 is not possible; expected 0, or at least the 24 pages of a program"
        );
        assert!(buffer(0).contains("collected in it"));
    }
}
