//! Bytes nobody interprets.

use std::io::{self, Write};

const COLUMNS: usize = 16;

/// A dump with offsets and characters, as nvme-cli prints one.
pub(crate) fn write(out: &mut dyn Write, bytes: &[u8]) -> io::Result<()> {
    writeln!(out, "       0  1  2  3  4  5  6  7  8  9  a  b  c  d  e  f")?;
    for (row, line) in bytes.chunks(COLUMNS).enumerate() {
        let hex: String = line.iter().map(|byte| format!("{byte:02x} ")).collect();
        let text: String =
            line.iter().map(|&byte| if byte.is_ascii_graphic() { byte as char } else { '.' }).collect();
        let width = COLUMNS * 3;
        writeln!(out, "{:04x}: {hex:width$}\"{text}\"", row * COLUMNS)?;
    }
    Ok(())
}

/// Bytes as one hexadecimal number of text, for JSON.
pub(crate) fn text(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_dump_has_offsets_bytes_and_characters() {
        let mut out = Vec::new();
        super::write(&mut out, b"\x00C\x01d    ;[\x07:by:O?h").expect("write");
        assert_eq!(
            String::from_utf8_lossy(&out),
            concat!(
                "       0  1  2  3  4  5  6  7  8  9  a  b  c  d  e  f\n",
                "0000: 00 43 01 64 20 20 20 20 3b 5b 07 3a 62 79 3a 4f \".C.d....;[.:by:O\"\n",
                "0010: 3f 68                                           \"?h\"\n",
            )
        );
    }
}
