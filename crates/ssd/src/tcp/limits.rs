//! What a connection allows its host.

use std::time::Duration;

use unvme_spec::tcp::MAXH2CDATA_MIN;

/// Largest value of [`Limits::r2ts_max`].
pub const R2TS_MAX: u32 = 4;
/// Largest value of [`Limits::cpda_z`].
pub const DATA_ALIGNMENT_Z_MAX: u8 = 31;

/// What a connection allows its host. [`Limits::default`] is what servers use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// CPDA: the host aligns the data of its PDUs to this many dwords, zero-based; 0 to
    /// [`DATA_ALIGNMENT_Z_MAX`].
    pub cpda_z: u8,
    /// MAXH2CDATA: most bytes of data in one PDU from the host; a multiple of 4, at least 4096.
    pub h2c_bytes_max: u32,
    /// Most bytes of data in one PDU to the host; not 0.
    pub c2h_bytes_max: u32,
    /// Most bytes that one R2T asks for; not 0.
    pub r2t_bytes_max: u32,
    /// Most R2Ts that a command has outstanding at a time, however many more the host would take; 1 to
    /// [`R2TS_MAX`].
    pub r2ts_max: u32,
    /// The host has this long for its ICReq.
    pub handshake: Duration,
    /// The host has this long for its Connect, after the ICReq; and then as long again for its
    /// authentication, if it has to prove who it is.
    pub connect: Duration,
    /// No byte moves for this long of one of these that is due: the rest of a PDU, data that was asked for,
    /// output that is not taken. The connection ends, however much of the others has moved.
    pub stall: Duration,
    /// Data of a command is there this long after it was asked for, and taken this long after it was ready:
    /// otherwise the connection ends, whatever else has moved. While others wait for memory, a host that has
    /// more than its part of it has [`Limits::stall`] for that.
    pub transfer: Duration,
    /// How long a connection that has sent a Terminate Request waits for the host to close it. The
    /// specification lets a controller reset the connection after 30 seconds (TCP Transport 3.5).
    pub linger: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            cpda_z: 0,
            h2c_bytes_max: 1 << 20,
            // The largest transfer of a block device, twice: some hosts take one PDU for a command.
            c2h_bytes_max: 4 << 20,
            r2t_bytes_max: 4 << 20,
            r2ts_max: R2TS_MAX,
            handshake: Duration::from_secs(10),
            connect: Duration::from_secs(10),
            stall: Duration::from_secs(30),
            transfer: Duration::from_secs(300),
            linger: Duration::from_secs(5),
        }
    }
}

impl Limits {
    /// Panics: when a value is outside its range: these are the server's own numbers.
    pub(super) fn check(&self) {
        assert!(self.cpda_z <= DATA_ALIGNMENT_Z_MAX, "CPDA {}", self.cpda_z);
        let h2c = self.h2c_bytes_max;
        assert!(h2c >= MAXH2CDATA_MIN && h2c.is_multiple_of(4), "MAXH2CDATA {h2c}");
        assert!(self.c2h_bytes_max > 0 && self.r2t_bytes_max > 0, "{self:?}");
        assert!((1..=R2TS_MAX).contains(&self.r2ts_max), "MAXR2T {}", self.r2ts_max);
    }
}
