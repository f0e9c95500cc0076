//! Memory that goes away under the device: its media file is cut, or a host takes its own memory away. Every
//! command that needed it fails, and no access raises a signal.

mod host;

use std::fs::{File, OpenOptions};
use std::path::Path;

use host::blocks::{FLUSH, READ, SOURCE, WRITE, access, pattern, read, transfer, write};
use host::pairs::kv_config;
use host::{Host, config, device_on};
use unvme_bus::{Dma, DmaAccess, Region};
use unvme_spec::Status;
use unvme_ssd::{CHUNK_BYTES, FileStore, FlashConfig, FlashGeometry, SsdConfig, SsdError};

fn started(folder: &Path, config: &SsdConfig) -> Host {
    let store = FileStore::open(folder, config.store_bytes().unwrap()).unwrap();
    let mut host = Host::attach(device_on(config.clone(), Box::new(store)));
    host.enable_all();
    host.create_queue_pair(1, 64);
    host
}

fn cut(folder: &Path, bytes: u64) {
    OpenOptions::new().write(true).open(folder.join("media.img")).unwrap().set_len(bytes).unwrap();
}

fn flash() -> SsdConfig {
    let geometry = FlashGeometry { unit_bytes: CHUNK_BYTES, ..FlashGeometry::default() };
    SsdConfig {
        flash: Some(FlashConfig { geometry, overprovisioning: 0.5, ..FlashConfig::default() }),
        ..config(512)
    }
}

#[test]
fn a_media_file_that_is_cut_fails_every_command_from_then_on() {
    for config in [config(512), flash()] {
        let folder = tempfile::tempdir().unwrap();
        let mut host = started(folder.path(), &config);
        write(&mut host, 0, &pattern(1, 4096), 512);
        write(&mut host, CHUNK_BYTES / 512, &pattern(2, 4096), 512);
        assert_eq!(host.io(access(FLUSH, 0, 1)), Ok(0));
        cut(folder.path(), 4096);
        let flush = host.io(access(FLUSH, 0, 1));
        assert_eq!(flush.unwrap_err().kind(), Status::WRITE_FAULT);
        let get = transfer(&host, READ, CHUNK_BYTES / 512, 8, SOURCE, 4096);
        assert_eq!(host.io(get).unwrap_err().kind(), Status::UNRECOVERED_READ_ERROR);
        // Also what would still be there, or has never been written.
        let get = transfer(&host, READ, 0, 8, SOURCE, 4096);
        assert_eq!(host.io(get).unwrap_err().kind(), Status::UNRECOVERED_READ_ERROR);
        for lba in [0, CHUNK_BYTES / 512, 3 * CHUNK_BYTES / 512] {
            let put = transfer(&host, WRITE, lba, 8, SOURCE, 4096);
            assert_eq!(host.io(put).unwrap_err().kind(), Status::WRITE_FAULT);
        }
        drop(host);
        let size = std::fs::metadata(folder.path().join("media.img")).unwrap().len();
        assert_eq!(size, 4096, "nobody makes it longer");
        let again = FileStore::open(folder.path(), config.store_bytes().unwrap());
        assert!(matches!(again, Err(SsdError::State { .. })));
    }
}

#[test]
fn pairs_of_a_media_file_that_is_cut_are_unrecovered() {
    let (folder, config) = (tempfile::tempdir().unwrap(), kv_config());
    let mut host = started(folder.path(), &config);
    host.store(b"key", &pattern(1, 5000)).unwrap();
    host.store(b"other", &pattern(2, 100)).unwrap();
    cut(folder.path(), 0);
    for key in [b"key".as_slice(), b"other"] {
        assert_eq!(host.value(key).unwrap_err().kind(), Status::UNRECOVERED_ERROR);
        assert_eq!(host.exist(key).unwrap_err().kind(), Status::UNRECOVERED_ERROR);
    }
    assert_eq!(host.store(b"key", &pattern(3, 5000)).unwrap_err().kind(), Status::WRITE_FAULT);
    assert_eq!(host.delete(b"key").unwrap_err().kind(), Status::WRITE_FAULT);
}

#[test]
fn a_command_whose_host_memory_went_away_is_a_failed_transfer() {
    let mut host = Host::with_queues(512);
    let file: File = tempfile::tempfile().unwrap();
    file.set_len(1 << 20).unwrap();
    let memory = Region::file(&file, 1 << 20).unwrap();
    let iova = 1 << 40;
    host.ssd.dma_map(iova, &memory, DmaAccess::READ_WRITE).unwrap();
    let mut put = access(WRITE, 0, 8);
    put.dptr = [iova, 0];
    assert_eq!(host.io(put), Ok(0));
    file.set_len(0).unwrap();
    assert_eq!(host.io(put).unwrap_err().kind(), Status::DATA_TRANSFER_ERROR);
    // Without that memory the controller is of use again.
    host.ssd.dma_unmap(iova, 1 << 20).unwrap();
    drop(memory);
    write(&mut host, 0, &pattern(1, 4096), 512);
    assert_eq!(read(&mut host, 0, 4096, 512), pattern(1, 4096));
}
