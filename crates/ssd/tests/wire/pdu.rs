//! PDUs and entries as bytes at the offsets of the specification.

/// Bytes of a logical block of the device.
pub const BLOCK_BYTES: usize = 512;

/// What the host asks for in its ICReq.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wishes {
    pub header_digest: bool,
    pub data_digest: bool,
    /// Dwords that data of PDUs to the host is aligned to, zero-based.
    pub hpda_z: u8,
    pub maxr2t_z: u32,
}

/// A submission queue entry.
#[derive(Clone, Copy)]
pub struct Sqe(pub [u8; 64]);

impl Sqe {
    /// A command whose data pointer is an SGL descriptor.
    pub fn new(opcode: u8) -> Self {
        Self([0; 64]).set(0, &[opcode, 0x40])
    }

    fn set(mut self, at: usize, bytes: &[u8]) -> Self {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
        self
    }

    pub fn cid(self, cid: u16) -> Self {
        self.set(2, &cid.to_le_bytes())
    }

    pub fn nsid(self, nsid: u32) -> Self {
        self.set(4, &nsid.to_le_bytes())
    }

    pub fn dword(self, index: usize, value: u32) -> Self {
        self.set(index * 4, &value.to_le_bytes())
    }

    /// Data Block, sub type Offset: the data is in the capsule.
    pub fn in_capsule(self, bytes: u32) -> Self {
        self.set(24, &[0; 8]).set(32, &bytes.to_le_bytes()).set(36, &[0, 0, 0, 0x01])
    }

    /// Transport Data Block, sub type Ah: the transport moves the data.
    pub fn transported(self, bytes: u32) -> Self {
        self.set(24, &[0; 8]).set(32, &bytes.to_le_bytes()).set(36, &[0, 0, 0, 0x5a])
    }

    pub fn connect(qid: u16, sqsize_z: u16, attributes: u8) -> Self {
        let sqe = Self::new(0x7f).set(4, &[0x01]).set(42, &qid.to_le_bytes());
        sqe.set(44, &sqsize_z.to_le_bytes()).set(46, &[attributes])
    }

    pub fn property_set(offset: u32, value: u64) -> Self {
        let sqe = Self::new(0x7f).set(4, &[0x00]);
        sqe.set(44, &offset.to_le_bytes()).set(48, &value.to_le_bytes())
    }

    pub fn property_get(offset: u32) -> Self {
        Self::new(0x7f).set(4, &[0x04]).set(44, &offset.to_le_bytes())
    }

    /// Write of namespace 1, whose data is in the capsule or moved by the transport.
    pub fn write(lba: u64, blocks: u32) -> Self {
        Self::blocks(0x01, lba, blocks)
    }

    pub fn read(lba: u64, blocks: u32) -> Self {
        Self::blocks(0x02, lba, blocks).transported(blocks * BLOCK_BYTES as u32)
    }

    pub fn flush() -> Self {
        Self::new(0x00).nsid(1)
    }

    fn blocks(opcode: u8, lba: u64, blocks: u32) -> Self {
        Self::new(opcode).nsid(1).set(40, &lba.to_le_bytes()).set(48, &((blocks - 1) as u16).to_le_bytes())
    }
}

/// A PDU of the controller, whole.
#[derive(Clone, PartialEq, Eq)]
pub struct Pdu(pub Vec<u8>);

impl Pdu {
    pub fn kind(&self) -> u8 {
        self.0[0]
    }

    pub fn flags(&self) -> u8 {
        self.0[1]
    }

    pub fn u16(&self, at: usize) -> u16 {
        u16::from_le_bytes(self.0[at..at + 2].try_into().expect("2 bytes"))
    }

    pub fn u32(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.0[at..at + 4].try_into().expect("4 bytes"))
    }

    /// Command identifier, of data, R2Ts and responses.
    pub fn cid(&self) -> u16 {
        self.u16(if self.kind() == 5 { 8 + 12 } else { 8 })
    }

    /// Of a response: a dword of its completion.
    pub fn cqe_u32(&self, dword: usize) -> u32 {
        self.u32(8 + dword * 4)
    }

    /// Of a response: the status field without the phase tag.
    pub fn status(&self) -> u16 {
        assert_eq!(self.kind(), 5, "a Response Capsule: {self:?}");
        self.u16(8 + 14) >> 1
    }

    /// Of an R2T: transfer tag, offset, bytes.
    pub fn r2t(&self) -> (u16, u32, u32) {
        assert_eq!((self.kind(), self.0[2]), (9, 24), "an R2T: {self:?}");
        (self.u16(10), self.u32(12), self.u32(16))
    }

    /// Of data: offset and the data, whose digest is checked.
    pub fn payload(&self) -> (u32, &[u8]) {
        assert_eq!((self.kind(), self.0[2]), (7, 24), "C2HData: {self:?}");
        let (pdo, bytes) = (usize::from(self.0[3]), self.u32(16) as usize);
        let data = &self.0[pdo..pdo + bytes];
        match self.flags() & 2 {
            0 => assert_eq!(self.0.len(), pdo + bytes, "PLEN"),
            _ => assert_eq!(self.0[pdo + bytes..], crc32c(data).to_le_bytes(), "the data digest"),
        }
        (self.u32(12), data)
    }

    /// Checks the header digest, of PDUs that have one.
    pub fn check_header_digest(&self) {
        let hlen = usize::from(self.0[2]);
        assert_eq!(self.flags() & 1, 1, "HDGSTF: {self:?}");
        assert_eq!(self.0[hlen..hlen + 4], crc32c(&self.0[..hlen]).to_le_bytes(), "the header digest");
    }
}

impl std::fmt::Debug for Pdu {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "type {:#04x}, {} bytes: {:02x?}", self.0[0], self.0.len(), &self.0[..self.0.len().min(48)])
    }
}

/// An Initialize Connection Request.
pub fn ic_req(wishes: &Wishes) -> [u8; 128] {
    let mut bytes = [0; 128];
    bytes[..8].copy_from_slice(&[0, 0, 128, 0, 128, 0, 0, 0]);
    bytes[10] = wishes.hpda_z;
    bytes[11] = u8::from(wishes.header_digest) | u8::from(wishes.data_digest) << 1;
    bytes[12..16].copy_from_slice(&wishes.maxr2t_z.to_le_bytes());
    bytes
}

/// Data of Connect.
pub fn connect_data(cntlid: u16, subsystem: &str, host: &str) -> Vec<u8> {
    let mut bytes = vec![0; 1024];
    bytes[..16].copy_from_slice(&[0x5a; 16]);
    bytes[16..18].copy_from_slice(&cntlid.to_le_bytes());
    bytes[256..256 + subsystem.len()].copy_from_slice(subsystem.as_bytes());
    bytes[512..512 + host.len()].copy_from_slice(host.as_bytes());
    bytes
}

/// CRC32C, bit by bit (RFC 3720, appendix B.4 has examples).
pub fn crc32c(bytes: &[u8]) -> u32 {
    let mut crc = !0u32;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = crc >> 1 ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 };
        }
    }
    !crc
}
