//! Names that must be unique in the world and stay the same: derived from the serial number, never stored
//! twice.

use unvme_bus::random;

/// OUI of the identifiers, most significant byte first: 52-54-00, the locally administered one of virtual
/// machines.
pub(crate) const IEEE_OUI: [u8; 3] = [0x52, 0x54, 0x00];

/// Subsystem qualified name: a UUID that two devices share only when they share the serial number.
pub(crate) fn subsystem_nqn(serial: &str) -> String {
    let bits = u128::from(hash(1, serial)) << 64 | u128::from(hash(2, serial));
    // Version 8 (an application's own scheme) and the variant of RFC 9562.
    let uuid = bits & !(0xf << 76) & !(0b11 << 62) | 8 << 76 | 0b10 << 62;
    format!(
        "nqn.2014-08.org.nvmexpress:uuid:{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        uuid >> 96,
        uuid >> 80 & 0xffff,
        uuid >> 64 & 0xffff,
        uuid >> 48 & 0xffff,
        uuid & 0xffff_ffff_ffff
    )
}

/// Namespace globally unique identifier of the `ordinal`-th namespace the device ever had: vendor specific
/// extension, OUI, extension (Base 4.7.1.4).
pub(crate) fn nguid(serial: &str, ordinal: u64) -> [u8; 16] {
    let mut id = [0; 16];
    let (vendor, rest) = id.split_at_mut(8);
    let (oui, extension) = rest.split_at_mut(3);
    vendor.copy_from_slice(&hash(3, serial).to_be_bytes());
    oui.copy_from_slice(&IEEE_OUI);
    for (target, byte) in extension.iter_mut().zip(ordinal.to_be_bytes().into_iter().skip(3)) {
        *target = byte;
    }
    id
}

/// IEEE extended unique identifier of the `ordinal`-th namespace: OUI, 24 bits of the serial number, 16 of
/// the ordinal.
pub(crate) fn eui64(serial: &str, ordinal: u64) -> [u8; 8] {
    let [_, a, b, c, ..] = hash(4, serial).to_be_bytes();
    let [high, low] = (ordinal as u16).to_be_bytes();
    let [x, y, z] = IEEE_OUI;
    [x, y, z, a, b, c, high, low]
}

/// FNV-1a, then mixed so that every bit depends on every character.
fn hash(seed: u64, text: &str) -> u64 {
    let start = 0xcbf2_9ce4_8422_2325 ^ seed.wrapping_mul(random::STEP);
    let sum = text.bytes().fold(start, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    random::mix(sum)
}
