//! `mkfs` and `fuse` of the guide: a file system on a block device of a configuration, and mounting it.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use unvme::{Block, Device, OpenOptions, open};
use unvme_fs::{MakeOptions, make};
use unvme_guide::SdkConfig;
use unvme_guide::config::SsdType;

use super::load_configuration;
use crate::exit::usage;
use crate::fs::mount::Mount;
use crate::numbers;

/// What the original gives to everything but the cache of its file system.
const OTHER_MEMORY: u64 = 256 << 20;

/// A block device as the guide names it: `unvme_bdev<N>n1`, the N-th of a configuration.
pub(super) struct Bdev {
    /// Its name in this project.
    pub(super) name: String,
    pub(super) config: SdkConfig,
    index: usize,
}

impl Bdev {
    /// Looks a device up in a configuration.
    pub(super) fn find(bdev: &str, path: &PathBuf) -> Result<Self> {
        let (config, warnings) = load_configuration(path)?;
        warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
        if config.ssd_type != SsdType::Lba {
            return Err(usage(format!("{}: a file system needs \"ssd_type\": \"lba\"", path.display())));
        }
        let number = bdev.strip_prefix("unvme_bdev").and_then(|rest| rest.strip_suffix("n1"));
        let index = number.and_then(|text| text.parse::<usize>().ok());
        let found = index.and_then(|index| Some((index, config.devices.get(index)?.dev_id.clone())));
        let count = config.devices.len();
        let Some((index, name)) = found else {
            return Err(usage(format!(
                "{bdev}: no such device; {} has unvme_bdev0n1 to unvme_bdev{}n1, in the order of its devices",
                path.display(),
                count.saturating_sub(1)
            )));
        };
        Ok(Self { name, config, index })
    }

    pub(super) fn open(&self) -> Result<(Device, Block)> {
        let device = open(&self.name, &OpenOptions::default())?;
        let nsid = device.namespaces()?.first().copied();
        let nsid = nsid.ok_or_else(|| usage(format!("{}: no namespace is attached", self.name)))?;
        let block = device.block(nsid)?;
        Ok((device, block))
    }

    /// Bytes for the page cache, as the original divides its memory.
    pub(super) fn cache_bytes(&self) -> Result<u64> {
        let all = self.config.app_memory_bytes;
        let cache = all.checked_sub(OTHER_MEMORY).filter(|&bytes| bytes > 0);
        cache.ok_or_else(|| {
            usage(format!("app_hugemem_size: {} MB; the cache is what is above 256 MB", all >> 20))
        })
    }

    /// The CPUs of its sessions.
    pub(super) fn cpus(&self) -> Vec<usize> {
        let mask = self.config.devices[self.index].core_mask;
        let all = std::thread::available_parallelism().map_or(1, usize::from);
        (0..64).filter(|&cpu| if mask == 0 { cpu < all } else { mask >> cpu & 1 == 1 }).collect()
    }
}

/// Arguments of `mkfs`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Everything on the device is destroyed.

Example: unvme mkfs unvme_bdev0n1 lba_sdk_config.json")]
pub(crate) struct Mkfs {
    /// Device: unvme_bdev<N>n1 is the N-th of the configuration
    #[arg(value_name = "BDEV", default_value = "unvme_bdev0n1")]
    bdev: String,
    /// Configuration
    #[arg(value_name = "CONFIG", default_value = "lba_sdk_config.json")]
    config: PathBuf,
    /// Cluster size: there can be one file for so many bytes, 4K to 64M. Files themselves take blocks of 4096
    /// bytes
    #[arg(short = 'C', long = "cluster-size", value_name = "SIZE", value_parser = numbers::bytes)]
    cluster_size: Option<u64>,
}

impl Mkfs {
    pub(crate) fn run(self) -> Result<()> {
        let bdev = Bdev::find(&self.bdev, &self.config)?;
        let (device, block) = bdev.open()?;
        println(&format!("Initializing filesystem on bdev {}...", self.bdev))?;
        let options = MakeOptions { bytes_per_inode: self.cluster_size, ..MakeOptions::default() };
        make(&block, device.name(), &options, |_, _| ())?;
        println("done.")
    }
}

/// Arguments of `fuse`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
It stays in the foreground until Ctrl-C, or until the file system is unmounted.

Example: sudo unvme fuse unvme_bdev0n1 lba_sdk_config.json /mnt/fuse")]
pub(crate) struct Fuse {
    /// Device: unvme_bdev<N>n1 is the N-th of the configuration
    #[arg(value_name = "BDEV")]
    bdev: String,
    /// Configuration
    #[arg(value_name = "CONFIG")]
    config: PathBuf,
    /// An empty directory
    #[arg(value_name = "MOUNTPOINT")]
    directory: PathBuf,
    /// Options of the mount, as -o of `unvme mount` has them
    #[arg(short = 'o', value_name = "OPTIONS")]
    options: Vec<String>,
    /// Said by those who know FUSE: it stays in the foreground anyway
    #[arg(short = 'f')]
    foreground: bool,
}

impl Fuse {
    pub(crate) fn run(self) -> Result<()> {
        let bdev = Bdev::find(&self.bdev, &self.config)?;
        println(&format!("Mounting filesystem on bdev {}", self.bdev))?;
        let cache = OsString::from(format!("cache={}", bdev.cache_bytes()?));
        let mut options = vec![cache.to_string_lossy().into_owned()];
        options.extend(self.options);
        Mount::in_foreground(bdev.name, self.directory, options).run()
    }
}

/// A line on standard output, there at once.
pub(super) fn println(line: &str) -> Result<()> {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}
