//! How much of each a device can have.

/// Most I/O queue pairs a device can have.
pub const IO_QUEUES_MAX: u16 = 64;
/// Most entries a queue can have (CAP.MQES + 1).
pub const QUEUE_ENTRIES_MAX: u32 = 4096;
/// Most namespaces a device can have (Identify Controller NN).
pub const NAMESPACES_MAX: u32 = 128;
