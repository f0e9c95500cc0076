//! What a PCI host sees before the first command: configuration space, BAR0, registers.

use unvme_bus::function::CONFIG_SPACE_BYTES;
use unvme_bus::{BusError, Region};
use unvme_spec::regs::{self, Aqa, Cap, Cc, Crto, Csts, NSSR_MAGIC, offset};

/// Bytes of BAR0.
pub(crate) const BAR_BYTES: u64 = 0x4000;
/// The page of BAR0 that holds the doorbells.
pub(crate) const DOORBELL_PAGE: u64 = offset::DOORBELLS;
/// MSI-X table in BAR0.
const MSIX_TABLE: u64 = 0x2000;
/// MSI-X pending bits in BAR0.
const MSIX_PENDING: u64 = 0x3000;

/// Memory of the doorbell page. It is cut from an object in which it lies at the same offset as in the BAR:
/// vfio-user clients map a window of a region at that offset.
pub(crate) fn doorbell_memory() -> Result<Region, BusError> {
    let page = DOORBELL_PAGE as usize;
    Ok(Region::shared("unvme-bar0", 2 * page)?.slice(page, page))
}

/// Bytes from the first register to the last one that is implemented, CRTO; what follows up to the doorbells
/// is reserved and reads as zero.
const REGISTERS_BYTES: usize = offset::CRTO as usize + 4;

const VENDOR_ID: u16 = 0x1b36;
const DEVICE_ID: u16 = 0x0010;
/// Mass storage, non-volatile memory, NVM Express.
const CLASS_CODE: [u8; 3] = [0x02, 0x08, 0x01];

const CAPABILITY_POWER: usize = 0x40;
const CAPABILITY_MSIX: usize = 0x50;
const CAPABILITY_EXPRESS: usize = 0x60;

/// CC.EN to CSTS.RDY takes no time here; hosts get a comfortable bound all the same. In 500 ms units.
const READY_TIMEOUT: u8 = 20;
/// Largest memory page size, as CAP.MPSMAX: 64 KiB.
const MPSMAX: u8 = 4;

/// The memory page size of CC when everything else in it is acceptable too.
pub(crate) fn accepted_page_bytes(cap: Cap, cc: Cc) -> Option<u32> {
    let entry_sizes = cc.iosqes() == 6 && cc.iocqes() == 4;
    // Entry sizes may still be zero at enable time: they matter when the first I/O queue is created (Base
    // 3.1.4.5).
    let entry_sizes_unset = cc.iosqes() == 0 && cc.iocqes() == 0;
    // What CAP.CSS offers; admin commands alone (111b) are not in it.
    let command_sets = matches!(cc.css(), regs::CSS_NVM | regs::CSS_ALL);
    let arbitration = match cc.ams() {
        regs::AMS_ROUND_ROBIN => true,
        regs::AMS_WEIGHTED => cap.ams() & regs::CAP_AMS_WEIGHTED != 0,
        _ => false,
    };
    let accepted = cc.mps() <= MPSMAX && arbitration && command_sets && (entry_sizes || entry_sizes_unset);
    accepted.then_some(4096 << cc.mps())
}

/// Checks an access to a BAR.
pub(crate) fn check_bar_range(index: usize, offset: u64, length: usize) -> Result<(), BusError> {
    let size = if index == 0 { BAR_BYTES } else { 0 };
    BusError::check_range("BAR", offset, length, size)
}

/// True for the MSI-X table and pending bits.
pub(crate) fn is_msix(offset: u64) -> bool {
    offset >= MSIX_TABLE
}

/// What a register write asks the device to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    Nothing,
    Configuration(Cc),
    SubsystemReset,
    InterruptMaskSet(u32),
    InterruptMaskClear(u32),
    Doorbell { offset: u64, value: u32 },
}

/// Controller registers.
pub(crate) struct RegisterFile {
    pub(crate) cap: Cap,
    pub(crate) cc: Cc,
    pub(crate) csts: Csts,
    pub(crate) aqa: Aqa,
    pub(crate) asq: u64,
    pub(crate) acq: u64,
}

impl RegisterFile {
    /// Of a controller at a bus, or of one that is reached over a network, where no memory has pages.
    pub(crate) fn new(queue_entries: u32, is_remote: bool) -> Self {
        let cap = Cap::new()
            .with_mqes_z((queue_entries - 1) as u16)
            .with_cqr(true)
            // Over a network each queue is served on its own.
            .with_ams(if is_remote { 0 } else { regs::CAP_AMS_WEIGHTED })
            .with_to(READY_TIMEOUT)
            .with_nssrs(true)
            // NVM command set, and all I/O command sets by profile.
            .with_css(1 | 1 << 6)
            .with_mpsmax(if is_remote { 0 } else { MPSMAX })
            .with_crms(1);
        Self { cap, cc: Cc::new(), csts: Csts::new(), aqa: Aqa::new(), asq: 0, acq: 0 }
    }

    /// A controller reset keeps the admin queue registers (Base 3.7.2); deeper resets do not.
    pub(crate) fn reset(&mut self, admin_queue_too: bool) {
        self.cc = Cc::new();
        self.csts = Csts::new().with_nssro(self.csts.nssro());
        if admin_queue_too {
            self.aqa = Aqa::new();
            self.asq = 0;
            self.acq = 0;
        }
    }

    pub(crate) fn read(&self, at: u64, out: &mut [u8], interrupt_mask: u32) {
        let mut image = [0u8; REGISTERS_BYTES];
        let crto = Crto::new().with_crwmt(READY_TIMEOUT.into());
        let mut put = |offset: u64, bytes: &[u8]| {
            image[offset as usize..][..bytes.len()].copy_from_slice(bytes);
        };
        put(offset::CAP, &self.cap.into_bits().to_le_bytes());
        put(offset::VS, &regs::VERSION_2_0.to_le_bytes());
        put(offset::INTMS, &interrupt_mask.to_le_bytes());
        put(offset::INTMC, &interrupt_mask.to_le_bytes());
        put(offset::CC, &self.cc.into_bits().to_le_bytes());
        put(offset::CSTS, &self.csts.into_bits().to_le_bytes());
        put(offset::AQA, &self.aqa.into_bits().to_le_bytes());
        put(offset::ASQ, &self.asq.to_le_bytes());
        put(offset::ACQ, &self.acq.to_le_bytes());
        put(offset::CRTO, &crto.into_bits().to_le_bytes());
        // The caller has checked the range; what lies behind the registers reads as zeroes.
        let available = image.get(at as usize..).unwrap_or_default();
        let known = available.len().min(out.len());
        out[..known].copy_from_slice(&available[..known]);
        out[known..].fill(0);
    }

    /// A 32-bit write to an aligned offset.
    pub(crate) fn write(&mut self, at: u64, value: u32) -> Written {
        // Admin queue registers may only change while the controller is disabled; later writes have no
        // effect.
        let disabled = !self.cc.en();
        match at {
            offset::INTMS => return Written::InterruptMaskSet(value),
            offset::INTMC => return Written::InterruptMaskClear(value),
            offset::CC => return Written::Configuration(self.new_configuration(Cc::from_bits(value))),
            offset::CSTS
                // NSSRO is cleared by writing 1 to it; everything else is read-only.
                if Csts::from_bits(value).nssro() => {
                    self.csts.set_nssro(false);
                }
            offset::NSSR if value == NSSR_MAGIC => return Written::SubsystemReset,
            offset::AQA if disabled => self.aqa = Aqa::from_bits(value),
            offset::ASQ if disabled => self.asq = self.asq & !0xffff_ffff | u64::from(value),
            ASQ_HIGH if disabled => self.asq = self.asq & 0xffff_ffff | u64::from(value) << 32,
            offset::ACQ if disabled => self.acq = self.acq & !0xffff_ffff | u64::from(value),
            ACQ_HIGH if disabled => self.acq = self.acq & 0xffff_ffff | u64::from(value) << 32,
            DOORBELL_PAGE.. => return Written::Doorbell { offset: at - DOORBELL_PAGE, value },
            _ => {}
        }
        Written::Nothing
    }

    /// While enabled, only EN, SHN and the entry sizes can change (Base 3.1.4.5).
    fn new_configuration(&self, new: Cc) -> Cc {
        if !self.cc.en() {
            return new;
        }
        self.cc.with_en(new.en()).with_shn(new.shn()).with_iosqes(new.iosqes()).with_iocqes(new.iocqes())
    }
}

const ASQ_HIGH: u64 = offset::ASQ + 4;
const ACQ_HIGH: u64 = offset::ACQ + 4;

/// Configuration space, and the MSI-X structures in BAR0 that belong to it.
pub(crate) struct ConfigSpace {
    bytes: Box<[u8; CONFIG_SPACE_BYTES]>,
    /// Bits a host may change.
    writable: Box<[u8; CONFIG_SPACE_BYTES]>,
    /// MSI-X table entries of 16 bytes. Delivery goes through eventfds; this only remembers what was written.
    msix: Vec<u8>,
    vectors: u16,
}

impl ConfigSpace {
    pub(crate) fn new(vectors: u16) -> Self {
        let mut space = Self {
            bytes: Box::new([0; CONFIG_SPACE_BYTES]),
            writable: Box::new([0; CONFIG_SPACE_BYTES]),
            msix: Vec::new(),
            vectors,
        };
        space.reset();
        space
    }

    pub(crate) fn reset(&mut self) {
        self.bytes.fill(0);
        self.writable.fill(0);
        self.msix = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0].repeat(self.vectors.into());
        self.put(0x00, &VENDOR_ID.to_le_bytes());
        self.put(0x02, &DEVICE_ID.to_le_bytes());
        // Memory Space, Bus Master, Interrupt Disable.
        self.allow(0x04, &[0x06, 0x04]);
        // Status: capabilities list.
        self.put(0x06, &[0x10, 0x00]);
        self.put(0x08, &[0x02]);
        self.put(0x09, &CLASS_CODE);
        // Cache line size and interrupt line are scratch registers.
        self.allow(0x0c, &[0xff]);
        self.allow(0x3c, &[0xff]);
        // BAR0 and BAR1: 64-bit memory, not prefetchable. Writable down to its size, which is how hosts size
        // it.
        self.put(0x10, &[0x04, 0, 0, 0]);
        self.allow(0x10, &(!(BAR_BYTES - 1)).to_le_bytes());
        self.put(0x2c, &VENDOR_ID.to_le_bytes());
        self.put(0x2e, &0x1100u16.to_le_bytes());
        self.put(0x34, &[CAPABILITY_POWER as u8]);
        self.put_power();
        self.put_msix();
        self.put_express();
    }

    /// PCI Power Management, version 3, no D1 or D2, no PME.
    fn put_power(&mut self) {
        self.put(CAPABILITY_POWER, &[0x01, CAPABILITY_MSIX as u8, 0x03, 0x00, 0x08, 0x00, 0x00, 0x00]);
        self.allow(CAPABILITY_POWER + 4, &[0x03]);
    }

    fn put_msix(&mut self) {
        let mut entry = [0u8; 12];
        entry[0] = 0x11;
        entry[1] = CAPABILITY_EXPRESS as u8;
        entry[2..4].copy_from_slice(&(self.vectors - 1).to_le_bytes());
        // Table and pending bits are both in BAR0.
        entry[4..8].copy_from_slice(&(MSIX_TABLE as u32).to_le_bytes());
        entry[8..12].copy_from_slice(&(MSIX_PENDING as u32).to_le_bytes());
        self.put(CAPABILITY_MSIX, &entry);
        // Enable and function mask.
        self.allow(CAPABILITY_MSIX + 3, &[0xc0]);
    }

    /// PCI Express, version 2, endpoint, function level reset.
    fn put_express(&mut self) {
        self.put(CAPABILITY_EXPRESS, &[0x10, 0x00, 0x02, 0x00]);
        // Device capabilities: 512-byte payload, role-based error reporting, function level reset.
        self.put(CAPABILITY_EXPRESS + 4, &(0x1000_8002u32).to_le_bytes());
        self.allow(CAPABILITY_EXPRESS + 8, &[0xff, 0xff]);
        // Link: 32 GT/s, four lanes.
        self.put(CAPABILITY_EXPRESS + 0x0c, &(0x0000_0045u32).to_le_bytes());
        self.put(CAPABILITY_EXPRESS + 0x12, &(0x0045u16).to_le_bytes());
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..][..bytes.len()].copy_from_slice(bytes);
    }

    fn allow(&mut self, at: usize, mask: &[u8]) {
        self.writable[at..][..mask.len()].copy_from_slice(mask);
    }

    /// The range has been checked.
    pub(crate) fn read(&self, at: usize, out: &mut [u8]) {
        out.copy_from_slice(&self.bytes[at..][..out.len()]);
    }

    /// The range has been checked. True when the write starts a function level reset.
    pub(crate) fn write(&mut self, at: usize, data: &[u8]) -> bool {
        for (offset, &value) in (at..).zip(data) {
            let mask = self.writable[offset];
            self.bytes[offset] = self.bytes[offset] & !mask | value & mask;
        }
        // Initiate Function Level Reset is bit 15 of Device Control and reads as zero.
        let control = CAPABILITY_EXPRESS + 9;
        let initiate = self.bytes[control] & 0x80 != 0;
        self.bytes[control] &= 0x7f;
        initiate
    }

    pub(crate) fn msix_read(&self, at: u64, out: &mut [u8]) {
        out.fill(0);
        if at < MSIX_PENDING
            && let Some(entries) = self.msix.get((at - MSIX_TABLE) as usize..)
        {
            let known = entries.len().min(out.len());
            out[..known].copy_from_slice(&entries[..known]);
        }
    }

    pub(crate) fn msix_write(&mut self, at: u64, data: &[u8]) {
        if at < MSIX_PENDING
            && let Some(entries) = self.msix.get_mut((at - MSIX_TABLE) as usize..)
        {
            let known = entries.len().min(data.len());
            entries[..known].copy_from_slice(&data[..known]);
        }
    }
}
