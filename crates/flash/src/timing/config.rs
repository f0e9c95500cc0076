//! What a model of timing is made of, and which values are possible.

/// A value of a model that is not possible.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {value} is not possible; expected {expected}")]
pub struct TimingError {
    /// Name of the value.
    pub key: &'static str,
    /// What it was.
    pub value: String,
    /// What is possible.
    pub expected: String,
}

/// How long commands take.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TimingConfig {
    /// As long as the work takes: completions are posted at once.
    #[default]
    None,
    /// As long as a modelled device would take.
    Model(TimingModel),
}

/// A device as its resources: each number says how long something takes or how much of it there is. What the
/// numbers of the presets rest on is told in [`TimingConfig::preset`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimingModel {
    /// Link bandwidth from the device to the host, in MB/s (10^6 bytes); 1 to 1 000 000.
    pub link_read_mb_s: u32,
    /// Link bandwidth from the host to the device, in MB/s; 1 to 1 000 000.
    pub link_write_mb_s: u32,
    /// Processors that take commands, 1 to 64. Each takes one at a time.
    pub firmware_cores: u8,
    /// How long a command occupies a processor, in nanoseconds; at most 1 s. The reciprocal, times the
    /// processors, is the most commands per second.
    pub firmware_command_ns: u32,
    /// What firmware adds to a command's time without being busy, in nanoseconds; at most 1 s. Writes into
    /// the buffer have [`TimingModel::buffer_fixed_ns`] instead.
    pub firmware_fixed_ns: u32,
    /// Channels, 1 to 256.
    pub channels: u16,
    /// Bandwidth of a channel, in MB/s; 1 to 1 000 000.
    pub channel_mb_s: u32,
    /// Length of a time slice in which a channel or the link gives away its bandwidth, in nanoseconds; 256 to
    /// 1 000 000.
    pub slice_ns: u32,
    /// Dies on each channel, 1 to 256.
    pub dies_per_channel: u16,
    /// Planes of a die, 1 to 16: they read independently of each other; programs and erases take all of them.
    pub planes: u8,
    /// Pages of 4 KiB in a plane's flash page, 1 to 64.
    pub plane_pages: u8,
    /// Flash pages of a word line, 1 (SLC) to 4 (QLC): a program writes all of them, on all planes of a die.
    pub cell_bits: u8,
    /// Time to sense a flash page, by its place in the word line, in nanoseconds; at most 1 s each. The first
    /// `cell_bits` are used.
    pub read_ns: [u32; 4],
    /// Time of a program, in nanoseconds; at most 1 s.
    pub program_ns: u32,
    /// Time of an erase, in nanoseconds; at most 1 s.
    pub erase_ns: u32,
    /// Pages of 4 KiB that one erase clears: a block on every plane of a die, 1 to 2^20.
    pub block_pages: u32,
    /// From asking for suspension of a program until a read can start, in nanoseconds; at most 1 s.
    pub program_suspend_ns: u32,
    /// The same of an erase.
    pub erase_suspend_ns: u32,
    /// From the end of the last read until the program or erase goes on, in nanoseconds; at most 1 s.
    pub resume_ns: u32,
    /// Reads that one program or erase lets go first, 0 to 65 535; with 0 nothing is suspended. It bounds how
    /// long a program or erase can take.
    pub suspends_max: u16,
    /// Pages of 4 KiB in the write buffer, up to 2^20: 0, when a write waits for its program, or at least
    /// what one program takes.
    pub buffer_pages: u32,
    /// What a write into the buffer takes at least, in nanoseconds; at most 1 s.
    pub buffer_fixed_ns: u32,
    /// What each page of a write adds to that, in nanoseconds; at most 1 s.
    pub buffer_page_ns: u32,
}

impl TimingConfig {
    /// True when completions are posted at once.
    pub const fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }

    /// The model, when there is one.
    pub const fn model(&self) -> Option<&TimingModel> {
        match self {
            Self::None => None,
            Self::Model(model) => Some(model),
        }
    }

    /// Checks every value. Errors: [`TimingError`] that names the value and what is possible.
    pub fn check(&self) -> Result<(), TimingError> {
        self.model().map_or(Ok(()), TimingModel::check)
    }
}

const SECOND_NS: u64 = 1_000_000_000;

impl TimingModel {
    /// Dies of the device.
    pub fn dies(&self) -> u32 {
        u32::from(self.channels) * u32::from(self.dies_per_channel)
    }

    /// Pages of 4 KiB that one program writes.
    pub fn program_pages(&self) -> u32 {
        u32::from(self.planes) * u32::from(self.plane_pages) * u32::from(self.cell_bits)
    }

    /// Checks every value. Errors: [`TimingError`] that names the value and what is possible.
    pub fn check(&self) -> Result<(), TimingError> {
        for (key, value, least, most) in self.ranges() {
            if !(least..=most).contains(&value) {
                return Err(refused(key, value, format!("{least} to {most}")));
            }
        }
        let program_pages = u64::from(self.program_pages());
        let buffer_pages = u64::from(self.buffer_pages);
        if buffer_pages > 0 && buffer_pages < program_pages {
            let expected = format!("0, or at least the {program_pages} pages of a program");
            return Err(refused("timing.buffer_pages", buffer_pages, expected));
        }
        if buffer_pages == 0 && program_pages > 1 {
            let expected =
                format!("at least the {program_pages} pages of a program, which are collected in it");
            return Err(refused("timing.buffer_pages", buffer_pages, expected));
        }
        Ok(())
    }

    /// Name, value, and least and most of each value that has a range of its own.
    fn ranges(&self) -> [(&'static str, u64, u64, u64); 25] {
        let [read0, read1, read2, read3] = self.read_ns;
        [
            ("timing.link_read_mb_s", self.link_read_mb_s.into(), 1, 1_000_000),
            ("timing.link_write_mb_s", self.link_write_mb_s.into(), 1, 1_000_000),
            ("timing.firmware_cores", self.firmware_cores.into(), 1, 64),
            ("timing.firmware_command_ns", self.firmware_command_ns.into(), 0, SECOND_NS),
            ("timing.firmware_fixed_ns", self.firmware_fixed_ns.into(), 0, SECOND_NS),
            ("timing.channels", self.channels.into(), 1, 256),
            ("timing.channel_mb_s", self.channel_mb_s.into(), 1, 1_000_000),
            ("timing.slice_ns", self.slice_ns.into(), 256, 1_000_000),
            ("timing.dies_per_channel", self.dies_per_channel.into(), 1, 256),
            ("timing.planes", self.planes.into(), 1, 16),
            ("timing.plane_pages", self.plane_pages.into(), 1, 64),
            ("timing.cell_bits", self.cell_bits.into(), 1, 4),
            ("timing.read_ns", read0.into(), 0, SECOND_NS),
            ("timing.read_ns", read1.into(), 0, SECOND_NS),
            ("timing.read_ns", read2.into(), 0, SECOND_NS),
            ("timing.read_ns", read3.into(), 0, SECOND_NS),
            ("timing.program_ns", self.program_ns.into(), 0, SECOND_NS),
            ("timing.erase_ns", self.erase_ns.into(), 0, SECOND_NS),
            ("timing.block_pages", self.block_pages.into(), 1, 1 << 20),
            ("timing.program_suspend_ns", self.program_suspend_ns.into(), 0, SECOND_NS),
            ("timing.erase_suspend_ns", self.erase_suspend_ns.into(), 0, SECOND_NS),
            ("timing.resume_ns", self.resume_ns.into(), 0, SECOND_NS),
            ("timing.buffer_pages", self.buffer_pages.into(), 0, 1 << 20),
            ("timing.buffer_fixed_ns", self.buffer_fixed_ns.into(), 0, SECOND_NS),
            ("timing.buffer_page_ns", self.buffer_page_ns.into(), 0, SECOND_NS),
        ]
    }
}

fn refused(key: &'static str, value: u64, expected: String) -> TimingError {
    TimingError { key, value: value.to_string(), expected }
}
