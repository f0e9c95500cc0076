//! Firmware Image Download and Commit.

mod host;

use host::{DATA, Host, sqe};
use unvme_spec::{Sqe, Status};
use unvme_ssd::{FIRMWARE_IMAGE_BYTES_MAX, firmware_image};

const PIECE: usize = 4096;

fn download(host: &mut Host, offset: usize, data: &[u8]) -> Result<u64, Status> {
    host.memory.write(DATA, data);
    let mut sqe = Sqe { cdw10: data.len() as u32 / 4 - 1, cdw11: offset as u32 / 4, ..sqe(0x11, 0) };
    host.set_prps(&mut sqe, DATA, data.len());
    host.admin(sqe)
}

/// Downloads an image in pieces of 4 KiB, the last one first.
fn download_all(host: &mut Host, image: &[u8]) {
    for (index, piece) in image.chunks(PIECE).enumerate().collect::<Vec<_>>().into_iter().rev() {
        download(host, index * PIECE, piece).expect("a piece");
    }
}

fn commit(host: &mut Host, slot: u32, action: u32) -> Result<u64, Status> {
    host.admin(Sqe { cdw10: slot | action << 3, ..sqe(0x10, 0) })
}

fn revision(host: &mut Host) -> String {
    let page = host.admin_in(Sqe { cdw10: 1, ..sqe(0x06, 0) }, 4096).expect("Identify");
    String::from_utf8(page[64..72].to_vec()).unwrap()
}

/// Active Firmware Info and the revisions of slots 1 to 4.
fn slots(host: &mut Host) -> (u8, [String; 4]) {
    let page = host.admin_in(Sqe { cdw10: 127 << 16 | 3, ..sqe(0x02, 0) }, 512).expect("Get Log Page");
    let name = |slot: usize| String::from_utf8(page[slot * 8..][..8].to_vec()).unwrap().replace('\0', "-");
    (page[0], [name(1), name(2), name(3), name(4)])
}

fn reset(host: &mut Host) {
    host.disable();
    host.enable();
}

#[test]
fn an_image_is_magic_revision_payload_and_checksum() {
    let image = firmware_image("2.5", b"abcde");
    assert_eq!(&image[..21], b"UNVMEFW\x002.5     abcde");
    assert!(image[21..4092].iter().all(|&byte| byte == 0));
    // CRC-32 of those 4092 bytes, as zlib computes it.
    assert_eq!(image[4092..], 0x0a1f_4313u32.to_le_bytes());
    assert_eq!(&firmware_image("longer than eight", &[])[8..16], b"longer t");
}

/// nvme-cli 2.3 downloads whole pieces of 4 KiB, the last one with bytes that are not in the file.
#[test]
fn an_image_survives_a_host_that_fills_up_the_last_piece() {
    for payload in [0, 1, PIECE - 20, PIECE - 19, 5000] {
        let mut host = Host::started(512);
        let mut image = firmware_image("2.0", &vec![0x5a; payload]);
        image.resize(image.len().next_multiple_of(PIECE), 0xee);
        download_all(&mut host, &image);
        assert_eq!(commit(&mut host, 2, 1), Ok(0), "{payload} bytes of payload");
    }
}

#[test]
fn an_image_committed_for_the_next_reset_runs_after_it() {
    let mut host = Host::started(512);
    assert_eq!(slots(&mut host), (1, ["1.0     ", "--------", "--------", "--------"].map(String::from)));
    download_all(&mut host, &firmware_image("2.0", &[0x5a; 3 * PIECE]));
    assert_eq!(commit(&mut host, 2, 1), Ok(0));
    assert_eq!(revision(&mut host), "1.0     ", "before the reset");
    assert_eq!(slots(&mut host), (0x21, ["1.0     ", "2.0     ", "--------", "--------"].map(String::from)));
    reset(&mut host);
    assert_eq!(revision(&mut host), "2.0     ");
    assert_eq!(slots(&mut host).0, 2);
    assert_eq!(commit(&mut host, 1, 2), Ok(0), "back to slot 1");
    assert_eq!(slots(&mut host).0, 0x12);
    reset(&mut host);
    assert_eq!((revision(&mut host), slots(&mut host).0), ("1.0     ".into(), 1));
}

#[test]
fn an_image_can_be_stored_without_running_and_run_without_a_reset() {
    let mut host = Host::started(512);
    download_all(&mut host, &firmware_image("3.0", &[]));
    assert_eq!(commit(&mut host, 3, 0), Ok(0));
    reset(&mut host);
    assert_eq!((revision(&mut host), slots(&mut host).0), ("1.0     ".into(), 1));
    assert_eq!(commit(&mut host, 3, 3), Ok(0));
    assert_eq!((revision(&mut host), slots(&mut host).0), ("3.0     ".into(), 3));
    download_all(&mut host, &firmware_image("4.0", &[]));
    assert_eq!(commit(&mut host, 1, 3), Ok(0), "downloaded, stored and run");
    assert_eq!((revision(&mut host), slots(&mut host).0), ("4.0     ".into(), 1));
}

#[test]
fn an_image_stored_in_the_active_slot_does_not_change_what_runs() {
    let mut host = Host::started(512);
    download_all(&mut host, &firmware_image("9.9", &[]));
    assert_eq!(commit(&mut host, 1, 0), Ok(0));
    assert_eq!(slots(&mut host).1[0], "9.9     ");
    reset(&mut host);
    assert_eq!(revision(&mut host), "1.0     ");
}

#[test]
fn slot_zero_leaves_the_choice_to_the_controller() {
    let mut host = Host::started(512);
    for (name, expected) in [
        ("a", "1.0     a       -------- "),
        ("b", "1.0     a       b        "),
        ("c", "1.0     c       b        "),
    ] {
        download_all(&mut host, &firmware_image(name, &[]));
        assert_eq!(commit(&mut host, 0, 0), Ok(0));
        assert_eq!(slots(&mut host).1[..3].concat() + " ", expected);
    }
    assert_eq!(commit(&mut host, 0, 3), Ok(0));
    assert_eq!(slots(&mut host).0, 2);
}

#[test]
fn images_that_are_none_are_refused_and_change_nothing() {
    let good = firmware_image("2.0", &[1; 64]);
    let mut magic = good.clone();
    magic[0] = b'V';
    let mut payload = good.clone();
    payload[20] ^= 1;
    let mut checksum = good.clone();
    *checksum.last_mut().unwrap() ^= 1;
    let truncated = good[..good.len() - 4].to_vec();
    let nameless = firmware_image("", &[1; 64]);
    let mut host = Host::started(512);
    for bad in [magic, payload, checksum, truncated, nameless, vec![0; 4], vec![0; PIECE]] {
        for action in [0, 1, 3] {
            download_all(&mut host, &bad);
            assert_eq!(commit(&mut host, 2, action), Err(Status::INVALID_FIRMWARE_IMAGE));
        }
    }
    assert_eq!(commit(&mut host, 2, 0), Err(Status::INVALID_FIRMWARE_IMAGE), "nothing was downloaded");
    assert_eq!(commit(&mut host, 2, 1), Err(Status::INVALID_FIRMWARE_IMAGE));
    assert_eq!(commit(&mut host, 2, 2), Err(Status::INVALID_FIRMWARE_IMAGE), "the slot is empty");
    assert_eq!(commit(&mut host, 2, 3), Err(Status::INVALID_FIRMWARE_IMAGE));
    assert_eq!(slots(&mut host), (1, ["1.0     ", "--------", "--------", "--------"].map(String::from)));
}

#[test]
fn a_piece_that_is_missing_or_comes_twice_is_noticed() {
    let image = firmware_image("2.0", &[7; 3 * PIECE]);
    let mut host = Host::started(512);
    download(&mut host, 0, &image[..PIECE]).unwrap();
    download(&mut host, 2 * PIECE, &image[2 * PIECE..]).unwrap();
    assert_eq!(download(&mut host, 0, &image[..PIECE]), Err(Status::OVERLAPPING_RANGE));
    assert_eq!(download(&mut host, PIECE, &image[PIECE..3 * PIECE]), Err(Status::OVERLAPPING_RANGE));
    assert_eq!(commit(&mut host, 2, 0), Err(Status::INVALID_FIRMWARE_IMAGE), "the second piece is missing");
    download_all(&mut host, &image);
    assert_eq!(commit(&mut host, 2, 0), Ok(0), "the commit before has made room");
}

#[test]
fn pieces_start_at_whole_pages_and_end_within_the_largest_image() {
    let mut host = Host::started(512);
    assert_eq!(download(&mut host, 512, &[0; PIECE]), Err(Status::INVALID_FIELD));
    assert_eq!(download(&mut host, FIRMWARE_IMAGE_BYTES_MAX, &[0; 4]), Err(Status::INVALID_FIELD));
    assert_eq!(
        download(&mut host, FIRMWARE_IMAGE_BYTES_MAX - PIECE, &[0; 2 * PIECE]),
        Err(Status::INVALID_FIELD)
    );
    assert_eq!(download(&mut host, FIRMWARE_IMAGE_BYTES_MAX - PIECE, &[0; PIECE]), Ok(0));
    let huge = Sqe { cdw10: u32::MAX, cdw11: !1023, ..sqe(0x11, 0) };
    assert_eq!(host.admin(huge), Err(Status::INVALID_FIELD));
}

#[test]
fn a_reset_discards_a_download() {
    let image = firmware_image("2.0", &[]);
    let mut host = Host::started(512);
    download_all(&mut host, &image);
    reset(&mut host);
    assert_eq!(commit(&mut host, 2, 0), Err(Status::INVALID_FIRMWARE_IMAGE));
    download_all(&mut host, &image);
    assert_eq!(commit(&mut host, 2, 0), Ok(0));
}

#[test]
fn slots_and_actions_that_are_not_there_are_refused_and_keep_the_download() {
    let mut host = Host::started(512);
    download_all(&mut host, &firmware_image("2.0", &[]));
    for slot in 4..8 {
        assert_eq!(commit(&mut host, slot, 0), Err(Status::INVALID_FIRMWARE_SLOT));
    }
    for action in 4..8 {
        assert_eq!(commit(&mut host, 2, action), Err(Status::INVALID_FIELD));
    }
    assert_eq!(commit(&mut host, 2, 0), Ok(0));
}
