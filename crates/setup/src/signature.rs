//! What a block device says it is part of, in its first and last sectors.
//!
//! A member of an array or a volume group that is not assembled is not in use as far as the kernel knows, and
//! is lost all the same when something writes to it. What is looked for, and where, is as in `blkid` of
//! util-linux.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

const SECTOR: u64 = 512;
const KIB: u64 = 1 << 10;

/// `MD_SB_MAGIC` (`linux/raid/md_p.h`), in the byte order of the machine that wrote it for version 0.90.
const MD_MAGIC: u32 = 0xa92b_4efc;
/// `BCACHE_MAGIC`, and that of bcachefs, in the superblock at 4 KiB.
const BCACHE_MAGIC: [u8; 16] =
    [0xc6, 0x85, 0x73, 0xf6, 0x4e, 0x1a, 0x45, 0xca, 0x82, 0x65, 0xf5, 0x7f, 0x48, 0xba, 0x6d, 0x81];
const BCACHEFS_MAGIC: [u8; 16] =
    [0xc6, 0x85, 0x73, 0xf6, 0x66, 0xce, 0x90, 0xa9, 0xd9, 0x6a, 0x60, 0xcf, 0x80, 0x3d, 0xf7, 0xef];
/// Header of the anchor of a SNIA disk data format.
const DDF_MAGIC: [u8; 4] = [0xde, 0x11, 0xde, 0x11];
/// `UBERBLOCK_MAGIC` of ZFS, in the byte order of the machine that wrote it.
const ZFS_MAGIC: u64 = 0x00ba_b10c;
/// A label of ZFS; there are two at the start and two at the end. Its second half holds the uberblocks.
const ZFS_LABEL: u64 = 256 * KIB;
const ZFS_UBERBLOCKS: u64 = 128 * KIB;
/// Distance of uberblocks: at least this.
const ZFS_UBERBLOCK_STEP: usize = 1 << 10;

/// What the device of `bytes` bytes is a member of; `None` when no sign of any was found.
pub(super) fn member_of(device: &File, bytes: u64) -> io::Result<Option<&'static str>> {
    let read = |offset: u64, length: u64| read_at(device, offset, length, bytes);
    let start = read(0, 8 * KIB)?;
    // A label of LVM is in one of the first four sectors.
    let is_lvm = |sector: &[u8]| sector.starts_with(b"LABELONE") && sector.get(24..32) == Some(b"LVM2 001");
    if start.chunks(SECTOR as usize).take(4).any(is_lvm) {
        return Ok(Some("LVM"));
    }
    if has(&start, 4096 + 24, &BCACHE_MAGIC) {
        return Ok(Some("bcache"));
    }
    if has(&start, 4096 + 24, &BCACHEFS_MAGIC) {
        return Ok(Some("bcachefs"));
    }
    if has(&start, 0, &MD_MAGIC.to_le_bytes()) || has(&start, 4096, &MD_MAGIC.to_le_bytes()) {
        return Ok(Some("a RAID array (md)"));
    }
    let sectors = bytes / SECTOR;
    // Version 1.0 is in the 8 KiB before the last 4 KiB boundary but one, 0.90 in the last whole 64 KiB.
    let v1_0 = (sectors.saturating_sub(16) & !7) * SECTOR;
    let v0_90 = (bytes & !(64 * KIB - 1)).saturating_sub(64 * KIB);
    for (offset, magics) in
        [(v1_0, [MD_MAGIC.to_le_bytes(); 2]), (v0_90, [MD_MAGIC.to_le_bytes(), MD_MAGIC.to_be_bytes()])]
    {
        let block = read(offset, 4)?;
        if magics.iter().any(|magic| has(&block, 0, magic)) {
            return Ok(Some("a RAID array (md)"));
        }
    }
    let end = read(bytes.saturating_sub(2 * SECTOR), 2 * SECTOR)?;
    if end.starts_with(b"Intel Raid ISM Cfg Sig. ") || has(&end, SECTOR as usize, &DDF_MAGIC) {
        return Ok(Some("a RAID array of the firmware"));
    }
    let last_label = (bytes & !(ZFS_LABEL - 1)).saturating_sub(ZFS_LABEL);
    for label in [0, last_label] {
        if has_uberblock(&read(label + ZFS_UBERBLOCKS, ZFS_LABEL - ZFS_UBERBLOCKS)?) {
            return Ok(Some("ZFS"));
        }
    }
    Ok(None)
}

fn has(bytes: &[u8], offset: usize, magic: &[u8]) -> bool {
    bytes.get(offset..).is_some_and(|rest| rest.starts_with(magic))
}

fn has_uberblock(bytes: &[u8]) -> bool {
    bytes.chunks(ZFS_UBERBLOCK_STEP).any(|block| {
        block.starts_with(&ZFS_MAGIC.to_le_bytes()) || block.starts_with(&ZFS_MAGIC.to_be_bytes())
    })
}

/// Bytes of a device, fewer where it ends before.
fn read_at(device: &File, offset: u64, length: u64, bytes: u64) -> io::Result<Vec<u8>> {
    let length = length.min(bytes.saturating_sub(offset));
    let mut buffer = vec![0; length as usize];
    device.read_exact_at(&mut buffer, offset)?;
    Ok(buffer)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: u64 = (4 << 20) + 5 * 512;

    fn found(at: u64, magic: &[u8]) -> Option<&'static str> {
        let file = tempfile::tempfile().expect("file");
        file.set_len(BYTES).expect("size");
        file.write_all_at(magic, at).expect("write");
        member_of(&file, BYTES).expect("read")
    }

    #[test]
    fn members_are_known_by_their_superblocks() {
        let mut label = *b"LABELONE................LVM2 001";
        for sector in 0..4 {
            assert_eq!(found(sector * 512, &label), Some("LVM"), "sector {sector}");
        }
        assert_eq!(found(4 * 512, &label), None);
        label[31] = b'9';
        assert_eq!(found(512, &label), None);

        let md = [0xfc, 0x4e, 0x2b, 0xa9];
        // 1.1, 1.2, 1.0 and 0.90: the last two by hand, for 8197 sectors.
        for at in [0, 4096, (8197 - 16) / 8 * 8 * 512, 4194304 - 65536] {
            assert_eq!(found(at, &md), Some("a RAID array (md)"), "{at}");
        }
        assert_eq!(found(4194304 - 65536, &[0xa9, 0x2b, 0x4e, 0xfc]), Some("a RAID array (md)"));
        assert_eq!(found(4096, &[0xa9, 0x2b, 0x4e, 0xfc]), None);
        assert_eq!(found(512, &md), None);

        assert_eq!(found(4096 + 24, &BCACHE_MAGIC), Some("bcache"));
        assert_eq!(found(4096 + 24, &BCACHEFS_MAGIC), Some("bcachefs"));
        assert_eq!(found(BYTES - 1024, b"Intel Raid ISM Cfg Sig. "), Some("a RAID array of the firmware"));
        assert_eq!(found(BYTES - 512, &[0xde, 0x11, 0xde, 0x11]), Some("a RAID array of the firmware"));
        let uberblock = [0x0c, 0xb1, 0xba, 0, 0, 0, 0, 0];
        for at in [131072, 131072 + 127 * 1024, 4194304 - 131072] {
            assert_eq!(found(at, &uberblock), Some("ZFS"), "{at}");
        }
        assert_eq!(found(131072 + 512, &uberblock), None);
        assert_eq!(found(131072, &[0, 0, 0, 0, 0, 0xba, 0xb1, 0x0c]), Some("ZFS"));
    }

    #[test]
    fn devices_of_any_size_are_looked_at_to_their_end_and_no_further() {
        for bytes in [0, 1, 511, 512, 1024, 4096, 8192, 65535, 65536, 131_073, 262_144, 300_000] {
            let file = tempfile::tempfile().expect("file");
            file.set_len(bytes).expect("size");
            assert_eq!(member_of(&file, bytes).expect("read"), None, "{bytes}");
        }
        // One that has become shorter is an error: what was not seen is not free.
        let file = tempfile::tempfile().expect("file");
        assert!(member_of(&file, 4096).is_err());
    }
}
