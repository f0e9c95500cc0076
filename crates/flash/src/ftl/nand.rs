//! What the layer works on.

/// Where data that is programmed comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The host has written it.
    Host,
    /// Reclaim moves it here from physical page `from`.
    Reclaim {
        /// Physical page the data is in.
        from: u32,
    },
}

/// A page could not be programmed: its unit is worn out or defective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgramFailure;

/// A unit that has become the open one of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// The unit, which is erased.
    pub unit: u32,
    /// Reclaim group it belongs to.
    pub group: u16,
    /// The handle whose data it takes; `None` for the destination that initially isolated handles share.
    pub handle: Option<u16>,
    /// It takes data that reclaim moves, not what hosts write.
    pub is_destination: bool,
    /// Number of the stream (see [`Ftl::stream`](super::Ftl::stream)), which [`UnitImage`](super::UnitImage)
    /// wants back.
    pub stream: u16,
}

/// The flash below a translation layer. The simulator counts, the device moves bytes.
pub trait Nand {
    /// Asked before a free unit is opened, for what may stand in the way of programming it now, such as space
    /// or a sync. On false nothing is opened, and whatever needed it fails with
    /// [`FtlError::Refused`](super::FtlError::Refused).
    fn admit(&mut self, unit: u32) -> bool {
        let _ = unit;
        true
    }

    /// False for a free unit that [`Nand::admit`] has to do something about: others are opened before it.
    fn is_ready(&self, unit: u32) -> bool {
        let _ = unit;
        true
    }

    /// A unit is opened: programs into it follow. It has been erased, or never written.
    fn open(&mut self, opened: Opened);

    /// Programs physical page `ppn` with the data of logical page `lpn`. The map still says where the data
    /// was before. Errors: [`ProgramFailure`] when the page cannot be programmed: the layer retires the unit
    /// and programs another one.
    fn program(&mut self, ppn: u32, lpn: u32, origin: Origin) -> Result<(), ProgramFailure>;

    /// A unit will not be written any further until it is erased: it is full, or it was closed with `written`
    /// pages.
    fn close(&mut self, unit: u32, written: u32);

    /// Erases a unit, in which nothing is valid any more.
    fn erase(&mut self, unit: u32);
}
