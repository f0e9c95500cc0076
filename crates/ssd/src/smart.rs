//! What the device counts.

use crate::kv::command::counters::KvCounters;

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
