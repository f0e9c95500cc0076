//! Pairs on a device with a flash translation layer: its accounts against the store's own.

use unvme_flash::PAGE_BYTES;
use unvme_flash::ftl::Isolation;
use unvme_flash::timing::OpList;

use super::*;
use crate::{FlashConfig, FlashGeometry, SsdConfig};

const BYTES: u64 = 64 << 20;

/// Of a device on flash, with `bytes` for pairs.
pub(super) fn config_of(bytes: u64) -> SsdConfig {
    let geometry =
        FlashGeometry { unit_bytes: 256 << 10, groups: 2, handles: vec![Isolation::Persistently; 2] };
    let flash = FlashConfig { geometry, overprovisioning: 0.28, ..FlashConfig::default() };
    SsdConfig { flash: Some(flash), ..SsdConfig::kv(bytes) }
}

fn config() -> SsdConfig {
    config_of(BYTES)
}

fn media(store: Box<dyn Store>) -> Arc<Media> {
    Arc::new(Media::open(&config(), store).expect("media"))
}

/// The sum check of the layer; returns physical pages in use.
fn check(media: &Media) -> u64 {
    let flash = media.flash().expect("flash");
    flash.with(&mut OpList::default(), |ftl, _| {
        ftl.check().expect("sums that agree");
        ftl.stats().mapped_pages
    })
}

fn work(pairs: &mut Pairs, random: &mut Random, count: usize) {
    for _ in 0..count {
        let key = format!("pair {}", random.below(2500)).into_bytes();
        let bytes = match random.below(300) {
            0 => 2_500_000,
            1..30 => random.below(100_000),
            _ => random.below(9000),
        };
        match random.below(6) {
            0 => drop(pairs.delete(&key).unwrap()),
            _ => assert!(matches!(pairs.put(&key, &random.bytes(bytes)), Ok(()) | Err(KvError::Full))),
        }
        pairs.store.maintain(50_000);
    }
}

/// Pages counted since, and the bytes that the store says it has written.
fn against(media: &Media, pairs: &Pairs, host_pages_before: u64) {
    let stats = media.flash().unwrap().stats();
    let written = pairs.store.stats().media_bytes_written;
    let counted = (stats.ftl.host_pages - host_pages_before) * PAGE_BYTES;
    // The log of a segment ends with a page that is not full, and its summary begins with one. What is open,
    // two heads for hosts and one for reclaim, ends with a page that is not counted yet.
    let segments = written / SEGMENT + 3;
    let (low, high) = (written.saturating_sub(3 * PAGE_BYTES), written + 2 * segments * PAGE_BYTES);
    assert!((low..=high).contains(&counted), "{counted} bytes counted, {written} written");
    assert_eq!(stats.ftl.media_pages(), stats.ftl.host_pages + stats.ftl.reclaim_pages);
    check(media);
}

const SEGMENT: u64 = super::super::layout::SEGMENT_BYTES as u64;

#[test]
fn pages_that_pairs_program_are_those_that_the_layer_counts() {
    let seed = seed("pages_that_pairs_program");
    let mut random = Random(seed.value);
    let media = media(memory(config().store_bytes().unwrap()));
    let store = Arc::new(KvStore::create(Arc::clone(&media), chunks_of(&media)).unwrap());
    store.place(&[0, 1]);
    let mut pairs = Pairs::new(store, 0);
    for _ in 0..4 {
        work(&mut pairs, &mut random, 2000);
        pairs.store.sync().unwrap();
        against(&media, &pairs, 0);
    }
    let stats = media.flash().unwrap().stats();
    assert!(stats.ftl.erased_units > 0, "segments that were erased have made room: {:?}", stats.ftl);
    assert!(
        stats.handles[0].host_pages > 0 && stats.handles[1].host_pages > 0,
        "copies go to a handle of their own"
    );
    assert_eq!(stats.handles[0].host_pages + stats.handles[1].host_pages, stats.ftl.host_pages);
    // What is mapped is what the segments in use hold.
    let in_use = check(&media);
    assert!(in_use * PAGE_BYTES <= BYTES && in_use * PAGE_BYTES > pairs.store.stats().used_bytes / 2);
}

#[test]
fn small_pairs_share_the_count_of_their_page() {
    let media = media(memory(config().store_bytes().unwrap()));
    let store = Arc::new(KvStore::create(Arc::clone(&media), chunks_of(&media)).unwrap());
    let mut pairs = Pairs::new(store, 0);
    let before = media.flash().unwrap().stats().ftl.host_pages;
    let written = pairs.store.stats().media_bytes_written;
    for number in 0..1000 {
        pairs.put(format!("pair {number}").as_bytes(), b"a few bytes").unwrap();
    }
    let written = pairs.store.stats().media_bytes_written - written;
    let counted = media.flash().unwrap().stats().ftl.host_pages - before;
    assert_eq!(counted, written / PAGE_BYTES, "{written} bytes");
}

#[test]
fn accounts_of_pairs_outlive_the_process() {
    let folder = tempfile::tempdir().unwrap();
    let file = || Box::new(FileStore::open(folder.path(), config().store_bytes().unwrap()).unwrap());
    let mut random = Random(3);
    let (pages, mapped) = {
        let media = media(file());
        let store = Arc::new(KvStore::create(Arc::clone(&media), chunks_of(&media)).unwrap());
        let mut pairs = Pairs::new(store, 0);
        work(&mut pairs, &mut random, 3000);
        against(&media, &pairs, 0);
        pairs.store.close().unwrap();
        drop(pairs);
        media.close().unwrap();
        (media.flash().unwrap().stats().ftl, check(&media))
    };
    let media = media(file());
    let ftl = media.flash().unwrap().stats().ftl;
    assert_eq!((ftl.host_pages, ftl.reclaim_pages), (pages.host_pages, pages.reclaim_pages));
    assert_eq!(check(&media), mapped);
    let store = Arc::new(KvStore::open(Arc::clone(&media), chunks_of(&media)).unwrap());
    let before = media.flash().unwrap().stats().ftl.host_pages;
    let mut pairs = Pairs::new(store, 0);
    work(&mut pairs, &mut random, 1000);
    against(&media, &pairs, before);
}

#[test]
fn pairs_on_worn_out_flash_are_refused_and_stay_readable() {
    let flash = FlashConfig { endurance: Some(3), ..config().flash.unwrap() };
    let config = SsdConfig { flash: Some(flash), ..config() };
    let store = memory(config.store_bytes().unwrap());
    let media = Arc::new(Media::open(&config, store).unwrap());
    let store = Arc::new(KvStore::create(Arc::clone(&media), chunks_of(&media)).unwrap());
    let mut pairs = Pairs::new(store, 0);
    let mut random = Random(4);
    let mut values = BTreeMap::new();
    let error = loop {
        let key = format!("pair {}", random.below(300)).into_bytes();
        let bytes = random.below(50_000);
        let value = random.bytes(bytes);
        match pairs.put(&key, &value) {
            Ok(()) => drop(values.insert(key, value)),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, KvError::Media(_)), "{error:?}");
    assert!(media.flash().unwrap().stats().is_read_only);
    for (key, value) in &values {
        assert_eq!(pairs.get(key).as_ref(), Ok(value));
    }
    check(&media);
}
