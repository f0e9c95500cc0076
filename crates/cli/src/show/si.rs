//! Sizes in powers of 1000, as drives are sold.

const UNITS: [&str; 9] = ["B", "kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"];

/// A size with two decimals: `3.84 TB`.
pub(crate) fn bytes(bytes: u128) -> String {
    let mut size = bytes as f64;
    let mut unit = 0;
    while size >= 1000.0 && unit + 1 < UNITS.len() {
        size /= 1000.0;
        unit += 1;
    }
    format!("{size:.2} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    #[test]
    fn sizes_read_as_nvme_cli_prints_them() {
        for (size, text) in [
            (0, "0.00 B"),
            (512_000, "512.00 kB"),
            (3_584_000, "3.58 MB"),
            (63_209_875_968_000, "63.21 TB"),
            (4_294_967_296, "4.29 GB"),
            (5_000 * 10u128.pow(24), "5000.00 YB"),
        ] {
            assert_eq!(super::bytes(size), text);
        }
    }
}
