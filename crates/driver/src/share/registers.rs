//! Registers of a shared controller (Base 3.1.4).

use unvme_spec::regs::{Aqa, CAP_AMS_WEIGHTED, Cap, Cc, Crto, Csts, offset};

/// Bytes from the first register to the last one that is implemented; what follows up to the doorbells reads
/// as zero.
const REGISTERS_BYTES: usize = offset::CRTO as usize + 4;
const ASQ_HIGH: u64 = offset::ASQ + 4;
const ACQ_HIGH: u64 = offset::ACQ + 4;

/// What a write asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Written {
    Nothing,
    /// CC, as it is to be.
    Configuration(Cc),
}

pub(super) struct Registers {
    cap: Cap,
    version: u32,
    crto: Crto,
    pub(super) cc: Cc,
    pub(super) csts: Csts,
    pub(super) aqa: Aqa,
    pub(super) asq: u64,
    pub(super) acq: u64,
    interrupt_mask: u32,
}

impl Registers {
    /// As the drive's, without what concerns the whole of it: resets and shutdowns of the subsystem, boot
    /// partitions, memory of the controller. Doorbells are next to each other, whatever the drive's stride.
    pub(super) fn new(drive: Cap, version: u32, crto: Crto, is_weighted: bool) -> Self {
        let cap = drive
            // What the drive does it does for all.
            .with_ams(if is_weighted { CAP_AMS_WEIGHTED } else { 0 })
            .with_dstrd(0)
            .with_nssrs(false)
            .with_nsss(false)
            .with_bps(false)
            .with_pmrs(false)
            .with_cmbs(false);
        Self {
            cap,
            version,
            crto,
            cc: Cc::new(),
            csts: Csts::new(),
            aqa: Aqa::new(),
            asq: 0,
            acq: 0,
            interrupt_mask: 0,
        }
    }

    /// As a controller that has just been reset; the admin queue's registers stay unless `all` (Base 3.7.2).
    pub(super) fn reset(&mut self, all: bool) {
        self.cc = Cc::new();
        self.csts = Csts::new();
        self.interrupt_mask = 0;
        if all {
            (self.aqa, self.asq, self.acq) = (Aqa::new(), 0, 0);
        }
    }

    pub(super) fn read(&self, at: u64, out: &mut [u8]) {
        let mut image = [0u8; REGISTERS_BYTES];
        let mut put = |offset: u64, bytes: &[u8]| {
            for (byte, &value) in image.iter_mut().skip(offset as usize).zip(bytes) {
                *byte = value;
            }
        };
        put(offset::CAP, &self.cap.into_bits().to_le_bytes());
        put(offset::VS, &self.version.to_le_bytes());
        put(offset::INTMS, &self.interrupt_mask.to_le_bytes());
        put(offset::INTMC, &self.interrupt_mask.to_le_bytes());
        put(offset::CC, &self.cc.into_bits().to_le_bytes());
        put(offset::CSTS, &self.csts.into_bits().to_le_bytes());
        put(offset::AQA, &self.aqa.into_bits().to_le_bytes());
        put(offset::ASQ, &self.asq.to_le_bytes());
        put(offset::ACQ, &self.acq.to_le_bytes());
        put(offset::CRTO, &self.crto.into_bits().to_le_bytes());
        out.fill(0);
        let from = usize::try_from(at).unwrap_or(usize::MAX);
        for (out, &byte) in out.iter_mut().zip(image.iter().skip(from)) {
            *out = byte;
        }
    }

    /// A 32-bit write to an aligned offset.
    pub(super) fn write(&mut self, at: u64, value: u32) -> Written {
        // The admin queue's registers may only change while the controller is disabled; later writes have no
        // effect.
        let disabled = !self.cc.en();
        let low = |register: u64| register & !0xffff_ffff | u64::from(value);
        let high = |register: u64| register & 0xffff_ffff | u64::from(value) << 32;
        match at {
            offset::INTMS => self.interrupt_mask |= value,
            offset::INTMC => self.interrupt_mask &= !value,
            offset::CC => return Written::Configuration(Cc::from_bits(value)),
            offset::AQA if disabled => self.aqa = Aqa::from_bits(value),
            offset::ASQ if disabled => self.asq = low(self.asq),
            ASQ_HIGH if disabled => self.asq = high(self.asq),
            offset::ACQ if disabled => self.acq = low(self.acq),
            ACQ_HIGH if disabled => self.acq = high(self.acq),
            _ => {}
        }
        Written::Nothing
    }
}
