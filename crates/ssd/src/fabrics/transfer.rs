//! Where a command's data is, how many bytes it has, and which way it goes (Base 4.3.2; TCP Transport 3.2).
//!
//! Everything read here was written by the host.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use unvme_spec::command::Direction;
use unvme_spec::sgl::{Descriptor, descriptor_type, sub_type};
use unvme_spec::{DataPointerKind, Sqe, Status, samsung_kv};

use crate::association::IN_CAPSULE_BYTES;

/// Most bytes of a command: the longest value of a pair.
pub(super) const TRANSFER_BYTES_MAX: u32 = 256 << 20;

/// A command's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Transfer {
    pub(super) way: Direction,
    /// 0 without data.
    pub(super) bytes: u32,
    /// It is in the capsule.
    pub(super) in_capsule: bool,
    /// Bytes at the start of what is in the capsule that have a key: 0 or [`samsung_kv::KEY_CAPSULE_BYTES`].
    pub(super) key_bytes: u32,
}

impl Transfer {
    const NONE: Self = Self { way: Direction::None, bytes: 0, in_capsule: false, key_bytes: 0 };

    /// Understands the data pointer of a command on an admin queue, or on another one.
    #[inline]
    pub(super) fn parse(sqe: &Sqe, is_admin: bool) -> Result<Self, Status> {
        check_kind(sqe)?;
        Self::behind(0, sqe, Direction::of(sqe, is_admin))
    }

    /// As [`Transfer::parse`], for a vendor's command for pairs: its key may be in the capsule, see
    /// [`samsung_kv`].
    pub(super) fn parse_pairs(sqe: &Sqe) -> Result<Self, Status> {
        check_kind(sqe)?;
        Self::behind(key_in_capsule(sqe)?, sqe, Direction::of(sqe, false))
    }

    /// Understands the data pointer of a command that has a key in so many bytes of its capsule.
    #[inline]
    fn behind(key_bytes: u32, sqe: &Sqe, way: Direction) -> Result<Self, Status> {
        let none = Self { key_bytes, ..Self::NONE };
        // Of the commands there are, none has data both ways.
        if !matches!(way, Direction::ToController | Direction::ToHost) {
            return Ok(none);
        }
        let descriptor = Descriptor::from_dptr(sqe.dptr);
        let bytes = descriptor.length;
        let in_capsule = match (descriptor.kind(), descriptor.sub_type()) {
            (descriptor_type::TRANSPORT_DATA_BLOCK, sub_type::TRANSPORT) => false,
            (descriptor_type::DATA_BLOCK, sub_type::OFFSET) if way == Direction::ToController => true,
            // Without data it matters to nobody what is described.
            _ if bytes == 0 => return Ok(none),
            (descriptor_type::DATA_BLOCK | descriptor_type::TRANSPORT_DATA_BLOCK, _) => {
                return Err(Status::SGL_DESCRIPTOR_TYPE_INVALID.with_do_not_retry());
            }
            // A list of descriptors has no place in a capsule (MSDBD is 1).
            (descriptor_type::SEGMENT | descriptor_type::LAST_SEGMENT, _) => {
                return Err(Status::INVALID_SGL_COUNT.with_do_not_retry());
            }
            _ => return Err(Status::SGL_DESCRIPTOR_TYPE_INVALID.with_do_not_retry()),
        };
        if bytes == 0 {
            return Ok(none);
        }
        let is_elsewhere = descriptor.address != u64::from(key_bytes);
        if in_capsule && (is_elsewhere || bytes > IN_CAPSULE_BYTES.saturating_sub(key_bytes)) {
            // ICDOFF is 0, and nothing but a key is in front of the data.
            return Err(Status::SGL_OFFSET_INVALID.with_do_not_retry());
        }
        if bytes > TRANSFER_BYTES_MAX {
            return Err(Status::INVALID_FIELD.with_do_not_retry());
        }
        Ok(Self { way, bytes, in_capsule, key_bytes })
    }

    /// Bytes that the command has in its capsule.
    #[inline]
    pub(super) fn capsule_bytes(&self) -> u32 {
        if self.in_capsule { self.key_bytes.saturating_add(self.bytes) } else { self.key_bytes }
    }
}

/// Over a network data pointers are SGLs (Base 3.3.3.1, PSDT).
#[inline]
fn check_kind(sqe: &Sqe) -> Result<(), Status> {
    match sqe.data_pointer_kind() {
        DataPointerKind::Sgl => Ok(()),
        _ => Err(Status::INVALID_FIELD.with_do_not_retry()),
    }
}

/// Bytes of the capsule that a key takes which is not in the entry; 0 without such a key.
fn key_in_capsule(sqe: &Sqe) -> Result<u32, Status> {
    let Some(samsung_kv::Key::Memory { prp, length }) = samsung_kv::Command::key_of(sqe) else {
        return Ok(0);
    };
    if usize::from(length) > samsung_kv::KEY_BYTES_MAX {
        return Err(samsung_kv::status::INVALID_KEY_SIZE.with_do_not_retry());
    }
    let descriptor = Descriptor::from_dptr(prp);
    if (descriptor.kind(), descriptor.sub_type()) != (descriptor_type::DATA_BLOCK, sub_type::OFFSET) {
        return Err(Status::SGL_DESCRIPTOR_TYPE_INVALID.with_do_not_retry());
    }
    if descriptor.address != 0 {
        // Elsewhere it could overlap the data, or be beyond the capsule.
        return Err(Status::SGL_OFFSET_INVALID.with_do_not_retry());
    }
    if descriptor.length != u32::from(length) {
        return Err(Status::DATA_SGL_LENGTH_INVALID.with_do_not_retry());
    }
    Ok(samsung_kv::KEY_CAPSULE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A data pointer as it is in a capsule.
    fn with(opcode: u8, descriptor: [u8; 16]) -> Sqe {
        let (low, high) = descriptor.split_at(8);
        let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
        Sqe { opcode, flags: 0x40, dptr: [word(low), word(high)], ..Sqe::default() }
    }

    #[test]
    fn a_transport_data_block_and_one_in_the_capsule_are_all_there_is() {
        let transport = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0x5a];
        let capsule = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0x01];
        let read = Transfer { way: Direction::ToHost, bytes: 4096, ..Transfer::NONE };
        assert_eq!(Transfer::parse(&with(0x02, transport), false), Ok(read));
        let write = Transfer { way: Direction::ToController, bytes: 4096, in_capsule: true, key_bytes: 0 };
        assert_eq!(Transfer::parse(&with(0x01, capsule), false), Ok(write));
        let wrong_type = Err(Status::SGL_DESCRIPTOR_TYPE_INVALID.with_do_not_retry());
        assert_eq!(Transfer::parse(&with(0x02, capsule), false), wrong_type);
        for identifier in [0x00, 0x10, 0x40, 0x50, 0x5f, 0xf0] {
            let mut other = transport;
            other[15] = identifier;
            assert_eq!(Transfer::parse(&with(0x01, other), false), wrong_type, "{identifier:#x}");
        }
        let mut segment = transport;
        segment[15] = 0x30;
        let count = Err(Status::INVALID_SGL_COUNT.with_do_not_retry());
        assert_eq!(Transfer::parse(&with(0x01, segment), false), count);
    }

    #[test]
    fn data_that_a_capsule_cannot_have_is_refused() {
        let offset = Err(Status::SGL_OFFSET_INVALID.with_do_not_retry());
        let too_long = [0, 0, 0, 0, 0, 0, 0, 0, 1, 0x20, 0, 0, 0, 0, 0, 0x01];
        assert_eq!(Transfer::parse(&with(0x01, too_long), false), offset);
        let elsewhere = [8, 0, 0, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0x01];
        assert_eq!(Transfer::parse(&with(0x01, elsewhere), false), offset);
        let field = Err(Status::INVALID_FIELD.with_do_not_retry());
        let huge = [0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0x10, 0, 0, 0, 0x5a];
        assert_eq!(Transfer::parse(&with(0x02, huge), false), field);
        let mut prps = with(0x02, [0; 16]);
        prps.flags = 0;
        assert_eq!(Transfer::parse(&prps, false), field);
    }

    #[test]
    fn the_direction_is_in_the_opcode_but_for_the_vendors_commands() {
        let transport = [0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0x5a];
        let way = |opcode, is_admin| Transfer::parse(&with(opcode, transport), is_admin).map(|it| it.way);
        assert_eq!(way(0x00, false), Ok(Direction::None));
        assert_eq!(way(0x06, true), Ok(Direction::ToHost));
        assert_eq!(way(0x09, false), Ok(Direction::ToController));
        assert_eq!(way(0x90, false), Ok(Direction::ToHost));
        assert_eq!(way(0xa1, false), Ok(Direction::None));
        assert_eq!(way(0x83, false), Ok(Direction::ToController));
        // Connect, and Property Get, by FCTYPE.
        let connect = Sqe { nsid: 0x01, ..with(0x7f, transport) };
        assert_eq!(Transfer::parse(&connect, true).map(|it| it.way), Ok(Direction::ToController));
        let get = Sqe { nsid: 0x04, ..with(0x7f, transport) };
        assert_eq!(Transfer::parse(&get, true), Ok(Transfer::NONE));
    }
}
