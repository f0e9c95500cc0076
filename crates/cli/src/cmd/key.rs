//! `key`: secrets of in-band authentication, and keys of TLS. None is ever on a command line.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, Subcommand, ValueEnum};
use unvme::fabrics::{Hash, Psk, Secret, SecretText, read_private};

use crate::cmd::commands;
use crate::exit::usage;
use crate::output::{Output, write_raw};
use crate::value::fields;

/// What a file with a key can have in bytes.
const KEY_BYTES_MAX: u64 = 4096;
/// What keys start with.
const PREFIXES: [&str; 2] = ["DHHC-1:", "NVMeTLSkey-1:"];

commands! {
/// Commands about keys.
#[derive(Debug, Subcommand)]
#[command(after_help = "\
A key has the text form that nvme-cli and the kernel use as well. It goes into the access file of a
server (unvme serve --access FILE) and into $UNVME_HOME/fabrics.json of a host, as text or as the
path of its file.

Examples:
  unvme key generate dhchap --out host.key
  unvme key generate tls --out tls.key
  unvme key check host.key")]
pub(crate) enum Command {
    /// Make a key of random numbers
    Generate(Generate),
    /// Say what kind of key a file holds, and whether it is whole
    Check(Check),
}
}

/// Kind of a key.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Kind {
    /// A secret for in-band authentication (DH-HMAC-CHAP)
    Dhchap,
    /// A pre-shared key for TLS 1.3
    Tls,
}

/// A hash function.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum HashArg {
    None,
    Sha256,
    Sha384,
    Sha512,
}

impl HashArg {
    fn hash(self) -> Option<Hash> {
        match self {
            Self::None => None,
            Self::Sha256 => Some(Hash::Sha256),
            Self::Sha384 => Some(Hash::Sha384),
            Self::Sha512 => Some(Hash::Sha512),
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct Generate {
    /// Kind of key
    #[arg(value_name = "KIND")]
    kind: Kind,
    /// Hash function that the key is bound to the names of its users by; its output is as long as the key
    #[arg(long, value_name = "HASH", default_value = "sha256")]
    hash: HashArg,
    /// File to write it to, which must not exist; its owner alone can read it. Standard output otherwise
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Check {
    /// File with the key; - is standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    output: Output,
}

impl Generate {
    fn run(self) -> Result<()> {
        let mut key = match (self.kind, self.hash) {
            (Kind::Tls, HashArg::Sha512) => {
                return Err(usage("key: TLS goes by keys of sha256, sha384 or none"));
            }
            (Kind::Tls, hash) => Psk::generate(hash.hash()).context("key")?.to_text(),
            (Kind::Dhchap, hash) => Secret::generate(hash.hash()).context("key")?.to_text(),
        };
        match &self.out {
            None => {
                key.push('\n');
                write_raw(key.as_bytes())
            }
            // The key and nothing else: there is software that takes a line end for a part of it.
            Some(path) => {
                let what = || format!("create {}", path.display());
                let mut file = OpenOptions::new()
                    .write(true)
                    .create_new(true)
                    .mode(0o600)
                    .open(path)
                    .with_context(what)?;
                file.write_all(key.as_bytes()).with_context(what)
            }
        }
    }
}

impl Check {
    fn run(self) -> Result<()> {
        let text = self.read()?;
        let (kind, hash) = match text.trim() {
            key if key.starts_with(PREFIXES[1]) => {
                let key: Psk = key.parse().map_err(|e| usage(format!("{}: {e}", self.file.display())))?;
                ("tls", key.hash())
            }
            key => {
                let key: Secret = key.parse().map_err(|e| usage(format!("{}: {e}", self.file.display())))?;
                ("dhchap", key.hash())
            }
        };
        let hash = match hash {
            None => "none",
            Some(Hash::Sha256) => "sha256",
            Some(Hash::Sha384) => "sha384",
            Some(Hash::Sha512) => "sha512",
        };
        let json = fields! { "kind": kind, "hash": hash };
        self.output.output.say(json, format!("a {kind} key, hash {hash}; its checksum is right"))
    }

    fn read(&self) -> Result<SecretText> {
        if self.file == Path::new("-") {
            let what = "key: standard input";
            // Not by way of the standard library's buffer, which nobody clears.
            let input = File::from(io::stdin().as_fd().try_clone_to_owned().context(what)?);
            return SecretText::read(input, KEY_BYTES_MAX, KEY_BYTES_MAX).context(what)?.context(what);
        }
        let name = self.file.to_string_lossy();
        if PREFIXES.iter().any(|prefix| name.starts_with(prefix)) {
            // Others see command lines. The key is not repeated.
            return Err(usage(
                "key: this is a key, not the name of a file; others can see what is typed here",
            ));
        }
        match read_private(&self.file)? {
            Some(text) => Ok(text),
            None => Err(io::Error::from(io::ErrorKind::NotFound)).with_context(|| format!("open {name}")),
        }
    }
}
