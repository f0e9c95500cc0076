//! Checks of the tree that the compiler does not make.
//!
//! - `floors`: who may depend on whom, between crates and inside them, and which crate forbids what.
//! - `circles`: files of a crate that need each other.
//! - `tidy`: ratchets on size, names, leftovers, unused items, text and links.
//! - `licences`: what ships stays usable from GPLv2 programs.
//! - `capi`: the C headers, the version script and the library say the same.
//!
//! Each check prints every problem it finds, one per line, and exits with 1 when there was any.
#![forbid(unsafe_code)]
// A build tool talks on the terminal; the lint guards the libraries.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod capi;
mod circles;
mod floors;
mod licences;
mod metadata;
mod modules;
mod spdx;
mod storeys;
mod tidy;

use std::env;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};

const HELP: &str = "\
cargo xtask <check>

  floors    dependency edges between the crates and between modules, and their unsafe policies
  circles   the largest circle of files in each crate
  tidy      file and function sizes, names, leftovers, unused items, text, links (exceptions: xtask/tidy.allow)
  licences  licences of everything that is linked into what ships
  capi      C headers against the version script, and a shared library given as a further argument
";

fn main() -> ExitCode {
    let Some(name) = env::args().nth(1) else {
        eprint!("{HELP}");
        return ExitCode::from(2);
    };
    let check: fn(&Path) -> Result<Vec<String>> = match name.as_str() {
        "floors" => floors::check,
        "circles" => circles::check,
        "tidy" => tidy::check,
        "licences" => licences::check,
        "capi" => capi::check,
        "help" | "--help" | "-h" => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        other => {
            eprint!("there is no check `{other}`\n\n{HELP}");
            return ExitCode::from(2);
        }
    };
    match workspace_root().and_then(|root| check(&root)) {
        Ok(problems) if problems.is_empty() => {
            println!("{name}: ok");
            ExitCode::SUCCESS
        }
        Ok(problems) => {
            for problem in &problems {
                eprintln!("{name}: {problem}");
            }
            eprintln!("{name}: {} to fix", problems.len());
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("{name}: could not run: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The folder of the root `Cargo.toml`. It is asked for at run time, so that a copied or moved checkout that
/// reuses a target folder checks itself and not its origin.
fn workspace_root() -> Result<PathBuf> {
    let manifest = env::var_os("CARGO_MANIFEST_DIR").context("run this as `cargo xtask`")?;
    let root = Path::new(&manifest).parent().context("xtask has no parent folder")?;
    Ok(root.to_path_buf())
}
