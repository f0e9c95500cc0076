//! Tests of the flash on its own: its format, damage, other geometries.

use std::mem::offset_of;

use unvme_bus::Region;
use unvme_flash::ftl::Isolation;
use unvme_spec::Status;

use super::record::Record;
use super::*;
use crate::media::Media;
use crate::store::{Extent, NOWHERE, Store};
use crate::{FlashConfig, SsdConfig};

const BYTES: u64 = 2 << 20;

/// Memory that outlives a device.
#[derive(Clone)]
struct Kept(Region);

impl Kept {
    /// Memory of its own with the same bytes.
    fn twin(&self) -> Self {
        let twin = Self(Region::anonymous(self.0.len()).unwrap());
        self.0.copy_to(0, &twin.0, 0, self.0.len());
        twin
    }
}

impl Store for Kept {
    fn bytes(&self) -> u64 {
        self.0.len() as u64
    }
    fn memory(&self) -> Option<&Region> {
        Some(&self.0)
    }
    fn holds_data(&self, chunk: u64) -> bool {
        let mut page = [0; 4096];
        (chunk * CHUNK_BYTES..(chunk + 1) * CHUNK_BYTES).step_by(4096).any(|at| {
            self.0.read(at as usize, &mut page);
            page != [0; 4096]
        })
    }
    fn reserve(&self, _chunk: u64) -> Result<(), SsdError> {
        Ok(())
    }
    fn release(&self, chunk: u64) -> Result<(), SsdError> {
        self.0.discard((chunk * CHUNK_BYTES) as usize, CHUNK_BYTES as usize);
        Ok(())
    }
    fn sync(&self) -> Result<(), SsdError> {
        Ok(())
    }
    fn load_state(&self) -> Result<Option<Vec<u8>>, SsdError> {
        Ok(None)
    }
    fn save_state(&self, _state: &[u8]) -> Result<(), SsdError> {
        Ok(())
    }
}

fn config() -> SsdConfig {
    let geometry = FlashGeometry { unit_bytes: 64 << 10, ..FlashGeometry::default() };
    let flash = FlashConfig { geometry, overprovisioning: 0.5, ..FlashConfig::default() };
    SsdConfig { flash: Some(flash), ..SsdConfig::block(BYTES, 4096) }
}

fn store() -> Kept {
    Kept(Region::anonymous(config().store_bytes().unwrap() as usize).unwrap())
}

fn open(store: &Kept) -> Media {
    Media::open(&config(), Box::new(store.clone())).unwrap()
}

fn extent(lpn: u32) -> Extent {
    Extent { offset: u64::from(lpn) * PAGE_BYTES, bytes: PAGE_BYTES as usize }
}

fn write(media: &Media, lpn: u32, value: u8) {
    let host = Region::anonymous(4096).unwrap();
    host.fill(0, 4096, value);
    media.write(extent(lpn), &host, 0, Placement::default(), &mut OpList::default()).unwrap();
}

/// The byte a page is full of.
fn read(media: &Media, lpn: u32) -> Result<u8, Status> {
    let host = Region::anonymous(4096).unwrap();
    host.fill(0, 4096, 0xee);
    media.read(extent(lpn), &host, 0, NOWHERE, &mut OpList::default())?;
    let mut page = [0; 4096];
    host.read(0, &mut page);
    assert!(page.iter().all(|byte| *byte == page[0]), "page {lpn} is torn");
    Ok(page[0])
}

/// A store with pages 0..40 written twice and page 3 deallocated, closed cleanly or not.
fn written(is_closed: bool) -> Kept {
    let store = store();
    let media = open(&store);
    for round in 0..2 {
        (0..40).for_each(|lpn| write(&media, lpn, (lpn + 100 * round) as u8));
    }
    media.zero(extent(3), Placement::default(), &mut OpList::default()).unwrap();
    media.sync().unwrap();
    if is_closed {
        media.close().unwrap();
    }
    store
}

/// [`written`], closed, with page 4 deallocated after that: what a damaged checkpoint has to be made up for.
fn trimmed_after_a_checkpoint() -> Kept {
    let store = written(false);
    let media = open(&store);
    write(&media, 5, 6);
    media.close().unwrap();
    drop(media);
    let media = open(&store);
    media.zero(extent(4), Placement::default(), &mut OpList::default()).unwrap();
    write(&media, 5, 5);
    media.sync().unwrap();
    store
}

fn flip(store: &Kept, at: u64, bit: u64) {
    let place = (at + bit / 8) as usize;
    let mut byte = [0];
    store.0.read(place, &mut byte);
    store.0.fill(place, 1, byte[0] ^ 1 << (bit % 8));
}

fn expected(lpn: u32) -> u8 {
    if lpn == 3 { 0 } else { (lpn + 100) as u8 }
}

fn physical(media: &Media, lpn: u32) -> u32 {
    media.flash().unwrap().map.get(lpn).unwrap()
}

#[test]
fn the_format_is_laid_out_as_documented() {
    let document = include_str!("../../../../docs/disk-format.md");
    let rows = [
        ("sequence", offset_of!(Record, sequence), 8),
        ("lpn", offset_of!(Record, lpn), 4),
        ("data_crc", offset_of!(Record, data_crc), 4),
        ("erased", offset_of!(Record, erased), 4),
        ("stream", offset_of!(Record, stream), 2),
        ("flags", offset_of!(Record, flags), 2),
        ("host_pages", offset_of!(Record, host_pages), 4),
        ("check", offset_of!(Record, check), 4),
        ("magic", offset_of!(superblock::Image, magic), 8),
        ("version", offset_of!(superblock::Image, version), 4),
        ("unit_pages", offset_of!(superblock::Image, unit_pages), 4),
        ("epoch", offset_of!(superblock::Image, epoch), 8),
        ("secret", offset_of!(superblock::Image, secret), 8),
        ("physical_pages", offset_of!(superblock::Image, physical_pages), 8),
        ("logical_pages", offset_of!(superblock::Image, logical_pages), 4),
        ("groups", offset_of!(superblock::Image, groups), 2),
        ("handles", offset_of!(superblock::Image, handles), 2),
        ("isolation", offset_of!(superblock::Image, isolation), 128),
        ("check", offset_of!(superblock::Image, check), 8),
        ("sequence", offset_of!(journal::Entry, sequence), 8),
        ("first", offset_of!(journal::Entry, first), 4),
        ("pages", offset_of!(journal::Entry, pages), 4),
        ("reserved", offset_of!(journal::Entry, reserved), 8),
        ("check", offset_of!(journal::Entry, check), 8),
        ("number", offset_of!(checkpoint::Header, number), 8),
        ("sequence", offset_of!(checkpoint::Header, sequence), 8),
        ("units", offset_of!(checkpoint::Header, units), 4),
        ("streams", offset_of!(checkpoint::Header, streams), 4),
        ("stats", offset_of!(checkpoint::Header, stats), 72),
        ("body", offset_of!(checkpoint::Header, body), 8),
        ("check", offset_of!(checkpoint::Header, check), 8),
    ];
    let (_, document) = document.split_once("# The format of a device with flash").unwrap();
    for (name, offset, bytes) in rows {
        let row = format!("\n| {offset} | {name} | {bytes} |");
        assert!(document.contains(&row), "the document has no row {row}");
    }
    assert!(document.contains(&format!("Format version: {}.", superblock::VERSION)));
}

#[test]
fn the_bytes_of_a_page_and_its_record_are_where_the_document_says() {
    let store = store();
    let media = open(&store);
    write(&media, 7, 0x5a);
    let layout = media.flash().unwrap().layout;
    let bytes = |at: u64, count: usize| {
        let mut bytes = vec![0; count];
        store.0.read(at as usize, &mut bytes);
        bytes
    };
    assert_eq!(layout.pages, BYTES);
    assert_eq!(bytes(BYTES, 4096), [0x5a; 4096]);
    let record = bytes(layout.records, 32);
    assert_eq!(record[..12], [1, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0]);
    // CRC-32C of 4096 bytes 5Ah.
    assert_eq!(record[12..16], record::crc(&[0x5a; 4096]).to_le_bytes());
    assert_eq!(record[16..28], [0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]);
    for at in layout.superblocks {
        let superblock = bytes(at, 184);
        assert_eq!(superblock[..16], *b"UNVMEFTL\x01\0\0\0\x10\0\0\0");
        assert_eq!(superblock[40..52], [0, 2, 0, 0, 1, 0, 1, 0, 1, 0, 0, 0]);
    }
}

#[test]
fn a_flipped_bit_in_the_data_is_an_error_of_that_page_alone_and_is_not_moved_away() {
    for is_closed in [false, true] {
        let store = written(is_closed);
        let media = open(&store);
        let at = media.flash().unwrap().layout.page(physical(&media, 11)) as usize + 1234;
        drop(media);
        let mut byte = [0];
        store.0.read(at, &mut byte);
        store.0.fill(at, 1, byte[0] ^ 4);
        let media = open(&store);
        let damage = media.flash().unwrap().check();
        assert_eq!(damage.iter().map(|d| d.logical_page).collect::<Vec<_>>(), [Some(11)], "{damage:?}");
        for lpn in 0..40 {
            let outcome = if lpn == 11 { Err(Status::UNRECOVERED_READ_ERROR) } else { Ok(expected(lpn)) };
            assert_eq!(read(&media, lpn), outcome, "page {lpn}");
        }
        // Reclaim moves everything; the damage is found where it is then.
        let place = physical(&media, 11);
        let mut random = 1u32;
        for _ in 0..20_000 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            write(&media, 12 + (random >> 8) % 480, random as u8);
        }
        assert_ne!(physical(&media, 11), place);
        assert_eq!(read(&media, 11), Err(Status::UNRECOVERED_READ_ERROR));
        // A part of it cannot be written: the rest would pass for data.
        let host = Region::anonymous(4096).unwrap();
        let part = Extent { bytes: 512, ..extent(11) };
        let outcome = media.write(part, &host, 0, Placement::default(), &mut OpList::default());
        assert_eq!(outcome, Err(Status::UNRECOVERED_READ_ERROR));
        write(&media, 11, 1);
        assert_eq!(read(&media, 11), Ok(1));
    }
}

#[test]
fn any_flipped_bit_in_a_record_is_corrected_and_told() {
    for is_closed in [false, true] {
        for bit in (0..256).step_by(7) {
            let store = written(is_closed);
            let media = open(&store);
            let at = media.flash().unwrap().layout.record(physical(&media, 20)) as usize + bit / 8;
            drop(media);
            let mut byte = [0];
            store.0.read(at, &mut byte);
            store.0.fill(at, 1, byte[0] ^ 1 << (bit % 8));
            let media = open(&store);
            (0..40).for_each(|lpn| assert_eq!(read(&media, lpn), Ok(expected(lpn)), "page {lpn}, bit {bit}"));
            assert_eq!(media.flash().unwrap().check().len(), 1, "bit {bit}");
        }
    }
}

#[test]
fn two_flipped_bits_in_a_record_or_the_journal_bring_nothing_old_back() {
    for round in 0..40 {
        let store = written(false);
        let media = open(&store);
        let layout = media.flash().unwrap().layout;
        let record = layout.record(physical(&media, 20));
        drop(media);
        for at in [record, layout.journal] {
            flip(&store, at, round * 6);
            flip(&store, at, 255 - round);
        }
        let media = open(&store);
        (0..40).for_each(|lpn| assert_eq!(read(&media, lpn), Ok(expected(lpn)), "page {lpn}, round {round}"));
        assert_eq!(media.flash().unwrap().check().len(), 2, "round {round}");
    }
}

#[test]
fn a_record_that_cannot_be_corrected_is_told() {
    let store = written(false);
    let media = open(&store);
    let record = media.flash().unwrap().layout.record(physical(&media, 20));
    drop(media);
    store.0.fill(record as usize, 12, 0x77);
    let damage = open(&store).flash().unwrap().check();
    assert_eq!(damage.iter().map(|d| d.offset).collect::<Vec<_>>(), [record], "{damage:?}");
}

/// What is not as it was is an error of its page, and told. Every part of what is on the media beside data is
/// hit.
#[test]
fn a_bit_or_two_flipped_anywhere_beside_the_data_never_make_other_data() {
    let intact = trimmed_after_a_checkpoint();
    let layout = open(&intact.twin()).flash().unwrap().layout;
    let expected = |lpn| match lpn {
        4 => 0,
        5 => 5,
        _ => expected(lpn),
    };
    let half = journal::first(&layout, 1) * 32;
    let [first, second] = layout.checkpoints;
    let parts = [
        ("records", layout.records, 82 * 32),
        ("a superblock", layout.superblocks[0], 184),
        ("the other superblock", layout.superblocks[1], 184),
        ("watermarks", layout.superblocks[0] + 4096, 80),
        ("the journal before the checkpoint", layout.journal, 32),
        ("the journal after it", layout.journal + half, 32),
        ("no checkpoint", first, 128),
        ("the header of the checkpoint", second, 128),
        ("its map", second + 4096, 40 * 4),
        ("its units", second + 4096 + 512 * 4, 48 * 24),
    ];
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let mut below = |bound: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random >> 16) % bound
    };
    for (part, at, bytes) in parts {
        let mut told = 0;
        for round in 0..24 {
            let store = intact.twin();
            (0..=round % 2).for_each(|_| flip(&store, at, below(bytes * 8)));
            let media = open(&store);
            let damage = media.flash().unwrap().check();
            for lpn in 0..48 {
                let wanted = if lpn < 40 { expected(lpn) } else { 0 };
                match read(&media, lpn) {
                    Err(_) => assert_ne!(damage, [], "{part}, page {lpn}"),
                    found => assert_eq!(found, Ok(wanted), "{part}, page {lpn}: {damage:?}"),
                }
            }
            told += u32::from(!damage.is_empty());
            (0..40).for_each(|lpn| write(&media, lpn, 9));
            (0..40).for_each(|lpn| assert_eq!(read(&media, lpn), Ok(9)));
        }
        // There are four copies of watermarks, and any will do. A record from before the checkpoint may be of
        // no interest.
        assert!(told > 11 || part == "watermarks", "{part}: {told}");
    }
}

#[test]
fn a_damaged_superblock_is_repaired_from_the_other_and_two_are_an_error() {
    let store = written(true);
    let layout = open(&store).flash().unwrap().layout;
    for at in layout.superblocks {
        store.0.fill(at as usize + 20, 4, 0x77);
        let media = open(&store);
        assert_eq!(media.flash().unwrap().check().len(), 1);
        assert_eq!(read(&media, 5), Ok(105));
    }
    assert_eq!(open(&store).flash().unwrap().check(), []);
    layout.superblocks.iter().for_each(|at| store.0.fill(*at as usize + 20, 4, 0x77));
    let error = Media::open(&config(), Box::new(store.clone())).err().expect("an error").to_string();
    assert!(error.contains("the superblock is damaged"), "{error}");
    layout.superblocks.iter().for_each(|at| store.0.fill(*at as usize, 184, 0));
    let error = Media::open(&config(), Box::new(store)).err().expect("an error").to_string();
    assert!(error.contains("a superblock is missing"), "{error}");
}

#[test]
fn a_damaged_checkpoint_is_told_and_records_bring_everything_back() {
    let store = written(true);
    let layout = open(&store).flash().unwrap().layout;
    for at in layout.checkpoints {
        store.0.fill(at as usize + 8, 4, 0x77);
    }
    let media = open(&store);
    (0..40).for_each(|lpn| assert_eq!(read(&media, lpn), Ok(expected(lpn)), "page {lpn}"));
    assert!(!media.flash().unwrap().check().is_empty());
}

#[test]
fn flash_of_another_size_is_refused_with_both_sizes() {
    let store = written(true);
    let layout = open(&store).flash().unwrap().layout;
    let mut image = vec![0; 184];
    store.0.read(layout.superblocks[0] as usize, &mut image);
    image[40] = 9;
    let check = twox_hash::XxHash3_64::oneshot(&image[..176]);
    image[176..].copy_from_slice(&check.to_le_bytes());
    store.0.write(layout.superblocks[0] as usize, &image);
    let error = Media::open(&config(), Box::new(store)).err().expect("an error").to_string();
    assert!(error.contains("521 logical and 768 physical pages, the device 512 and 768"), "{error}");
}

#[test]
fn random_bytes_anywhere_are_an_error_or_damage_and_never_a_panic() {
    let mut random = 0x1234_5678_9abc_def1u64;
    for round in 0..60 {
        let store = written(round % 2 == 0);
        let layout = open(&store).flash().unwrap().layout;
        let parts = [
            layout.records,
            layout.superblocks[0],
            layout.journal,
            layout.checkpoints[0],
            layout.checkpoints[1],
        ];
        for _ in 0..8 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let part = parts[(random % parts.len() as u64) as usize];
            store.0.write((part + (random >> 20) % 4000) as usize, &random.to_le_bytes());
        }
        if let Ok(media) = Media::open(&config(), Box::new(store)) {
            (0..40).for_each(|lpn| _ = read(&media, lpn));
            (0..40).for_each(|lpn| write(&media, lpn, 9));
            (0..40).for_each(|lpn| assert_eq!(read(&media, lpn), Ok(9)));
        }
    }
}

#[test]
fn what_was_in_a_namespace_that_was_deleted_does_not_come_back_when_the_power_goes() {
    for seed in 0..12 {
        let store = written(false);
        let media = open(&store);
        media.release([0]).unwrap();
        media.flash().unwrap().cut_power(seed);
        drop(media);
        let media = open(&store);
        (0..40).for_each(|lpn| assert_eq!(read(&media, lpn), Ok(0), "page {lpn}, seed {seed}"));
    }
}

#[test]
fn an_open_unit_of_which_some_chunks_have_no_data_yet_is_written_further() {
    let geometry = FlashGeometry { unit_bytes: 2 * CHUNK_BYTES, ..FlashGeometry::default() };
    let flash = FlashConfig { geometry, overprovisioning: 16.0, ..FlashConfig::default() };
    let config = SsdConfig { flash: Some(flash), ..SsdConfig::block(BYTES, 4096) };
    let store = Kept(Region::anonymous(config.store_bytes().unwrap() as usize).unwrap());
    for round in 1..4 {
        let media = Media::open(&config, Box::new(store.clone())).unwrap();
        (0..300).for_each(|lpn| write(&media, lpn, round));
        assert_eq!(media.flash().unwrap().check(), [], "round {round}");
        (0..300).for_each(|lpn| assert_eq!(read(&media, lpn), Ok(round), "page {lpn}"));
        media.close().unwrap();
    }
}

#[test]
fn another_geometry_keeps_wear_and_nothing_else() {
    let store = written(false);
    let media = open(&store);
    for round in 0..40 {
        (0..500).for_each(|lpn| write(&media, lpn, round));
    }
    let flash = media.flash().unwrap();
    let worn = flash.stats().wear;
    assert!(worn.erased_max > 10, "{worn:?}");
    let handles = vec![Isolation::Initially, Isolation::Persistently];
    let geometry = FlashGeometry { unit_bytes: 96 << 10, groups: 1, handles };
    flash.reconfigure(&geometry).unwrap();
    assert_eq!(flash.geometry(), geometry);
    assert_eq!(flash.check(), []);
    (0..500).for_each(|lpn| assert_eq!(read(&media, lpn), Ok(0)));
    let wear = flash.stats().wear;
    assert!((worn.erased_min..=worn.erased_max).contains(&wear.erased_max), "{worn:?} {wear:?}");
    write(&media, 5, 55);
    media.sync().unwrap();
    drop(media);
    let media = open(&store);
    assert_eq!(media.flash().unwrap().geometry(), geometry);
    assert_eq!(media.flash().unwrap().check(), [], "nothing of the old geometry passes for damage");
    assert_eq!([read(&media, 5), read(&media, 6)], [Ok(55), Ok(0)]);
    assert!(media.flash().unwrap().stats().wear.erased_max >= wear.erased_max);
}

#[test]
fn readers_see_whole_pages_of_their_own_while_units_are_written_anew() {
    let store = crate::MemoryStore::new(config().store_bytes().unwrap()).unwrap();
    let media = Media::open(&config(), Box::new(store)).unwrap();
    let fill = |lpn: u32, value: u32| {
        let host = Region::anonymous(4096).unwrap();
        for at in (0..4096).step_by(8) {
            host.store_u64(at, u64::from(lpn) << 32 | u64::from(value), Ordering::Relaxed);
        }
        media.write(extent(lpn), &host, 0, Placement::default(), &mut OpList::default()).unwrap();
    };
    (0..512).for_each(|lpn| fill(lpn, 0));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let host = Region::anonymous(4096).unwrap();
            let mut latest = [0; 512];
            let mut random = 1u32;
            while !is_over.load(Ordering::Relaxed) {
                random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let lpn = (random >> 8) % 512;
                media.read(extent(lpn), &host, 0, NOWHERE, &mut OpList::default()).unwrap();
                let first = host.load_u64(0, Ordering::Relaxed);
                assert_eq!(first >> 32, u64::from(lpn), "another page's data");
                for at in (0..4096).step_by(8) {
                    assert_eq!(host.load_u64(at, Ordering::Relaxed), first, "page {lpn} is torn");
                }
                assert!(first as u32 >= latest[lpn as usize], "page {lpn} went back");
                latest[lpn as usize] = first as u32;
            }
        });
        let mut random = 77u32;
        for value in 1..20_000 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            fill((random >> 8) % 512, value);
        }
        is_over.store(true, Ordering::Relaxed);
        reader.join().unwrap();
    });
    assert!(media.flash().unwrap().stats().ftl.erased_units > 100);
}
