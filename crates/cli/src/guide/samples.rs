//! The sample configurations that are installed with the programs.

use std::path::{Path, PathBuf};

/// The samples, from the folder that programs are installed to.
const SAMPLES: &str = "share/unvme";
/// How many folders above that of the program have samples: `PREFIX` of `PREFIX/bin`, the clone of
/// `target/release`.
const LEVELS: usize = 2;

/// Where a configuration that was named is: where the name says, or else among the samples beside the
/// program, so that what the guide and the help show runs in any folder. A name that is nowhere is left as it
/// is.
pub(crate) fn found(name: &Path) -> PathBuf {
    let program = std::env::current_exe().unwrap_or_default();
    found_beside(name, &program)
}

fn found_beside(name: &Path, program: &Path) -> PathBuf {
    if name.is_absolute() || name.exists() {
        return name.to_owned();
    }
    let folders = program.ancestors().skip(1).take(1 + LEVELS);
    let mut samples = folders.map(|folder| folder.join(SAMPLES).join(name.strip_prefix(".").unwrap_or(name)));
    samples.find(|sample| sample.is_file()).unwrap_or_else(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_found_in_a_prefix_and_in_a_clone_and_no_further_up() {
        let root = tempfile::tempdir().expect("a folder");
        let samples = root.path().join(SAMPLES);
        std::fs::create_dir_all(samples.join("scripts")).expect("folders");
        std::fs::write(samples.join("scripts/one.json"), "{}").expect("write");
        let found = |name: &str, program: &str| found_beside(Path::new(name), &root.path().join(program));
        let sample = samples.join("scripts/one.json");
        for program in ["unvme", "bin/unvme", "target/release/unvme"] {
            assert_eq!(found("./scripts/one.json", program), sample, "{program}");
            assert_eq!(found("scripts/one.json", program), sample, "{program}");
        }
        assert_eq!(found("scripts/one.json", "a/b/c/unvme"), Path::new("scripts/one.json"));
        assert_eq!(found("scripts/two.json", "bin/unvme"), Path::new("scripts/two.json"));
        assert_eq!(found("/scripts/one.json", "bin/unvme"), Path::new("/scripts/one.json"));
        // What is there under the name itself comes first.
        assert_eq!(found("Cargo.toml", "bin/unvme"), Path::new("Cargo.toml"));
    }
}
