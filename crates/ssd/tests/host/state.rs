//! What a device has saved, as a test changes it.

use std::path::Path;

/// The state file as one of version 3 is, which has no checksum: what it says can be changed.
pub fn unsealed(folder: &Path) -> String {
    let text = std::fs::read_to_string(folder.join("state.json")).unwrap();
    let is_seal = |line: &&str| line.starts_with("  \"identity\"") || line.starts_with("  \"check\"");
    let lines: Vec<&str> = text.lines().filter(|line| !is_seal(line)).collect();
    lines.join("\n").replace("\"version\": 4", "\"version\": 3")
}
