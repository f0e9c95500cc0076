//! Reading the fuzzer's bytes, which end when they end.

/// What is left of an input. Everything reads as zero beyond its end.
pub struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Up to `most` bytes.
    pub fn take(&mut self, most: usize) -> &'a [u8] {
        let (now, later) = self.0.split_at(most.min(self.0.len()));
        self.0 = later;
        now
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        let now = self.take(N);
        bytes[..now.len()].copy_from_slice(now);
        bytes
    }

    pub fn u8(&mut self) -> u8 {
        self.array::<1>()[0]
    }

    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    pub fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    pub fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    /// A number that is mostly small: a byte says how many bytes it has.
    pub fn word(&mut self) -> u32 {
        match self.u8() & 7 {
            0 => 0,
            1 | 2 => self.u8().into(),
            3 | 4 => self.u16().into(),
            5 => 1 << (self.u8() & 31),
            6 => u32::MAX - u32::from(self.u8()),
            _ => self.u32(),
        }
    }
}
