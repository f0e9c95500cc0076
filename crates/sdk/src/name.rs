//! Names of devices: which transport a name means.

mod memory;
mod tcp;

use std::fmt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use crate::{Error, PciAddress, Result};

pub use memory::MemoryDevice;
pub use tcp::TcpName;
pub(crate) use tcp::check_nqn;

/// How each kind of name is written.
pub const NAME_SYNTAX: &str = "a PCI address such as 0000:02:00.0 for a virtual device or a drive set up for user space, \
kernel:PATH such as kernel:/dev/ng0n1 for one the kernel drives, mem:block:SIZE[,OPTION...] or mem:kv:SIZE[,OPTION...] for one that lives and dies with the process, \
vfio-user:SOCKET for one that another process serves, or tcp:HOST:PORT/NQN[,OPTION...] for one on another machine";

/// A device name, understood. Whether such a device is there is another question.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeviceName {
    /// A virtual slot, or where there is none a drive on the PCI bus.
    Address(PciAddress),
    /// A device of the kernel's: an NVMe character device, any block device, or a file.
    Kernel(PathBuf),
    /// A device inside this process.
    Memory(MemoryDevice),
    /// The socket of a vfio-user server.
    VfioUser(PathBuf),
    /// A subsystem that an NVMe/TCP target serves.
    Tcp(TcpName),
}

impl DeviceName {
    /// Understands a name; `None` when the text has no form of a device name at all, so that the caller can
    /// list what is there.
    ///
    /// # Errors
    /// [`Error::Name`] saying what was expected.
    pub fn parse(text: &str) -> Result<Option<Self>> {
        if let Some(hint) = hint(text) {
            return Err(wrong(text, hint));
        }
        let Some((scheme, rest)) = text.split_once(':') else {
            return Ok(None);
        };
        match scheme {
            "mem" => match rest.parse() {
                Ok(device) => Ok(Some(Self::Memory(device))),
                Err(reason) => Err(wrong(text, reason)),
            },
            "vfio-user" if rest.is_empty() => {
                Err(wrong(text, "expected the path of a socket, such as vfio-user:/run/nvme.sock"))
            }
            "vfio-user" => Ok(Some(Self::VfioUser(rest.into()))),
            "kernel" if rest.is_empty() => Err(wrong(text, "expected a path, such as kernel:/dev/ng0n1")),
            "kernel" => Ok(Some(Self::Kernel(rest.into()))),
            "tcp" => match rest.parse() {
                Ok(name) => Ok(Some(Self::Tcp(name))),
                Err(reason) => Err(wrong(text, reason)),
            },
            _ => Ok(text.parse().ok().map(Self::Address)),
        }
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Kernel(path) => write!(f, "kernel:{}", path.display()),
            Self::VfioUser(path) => write!(f, "vfio-user:{}", path.display()),
            Self::Memory(device) => device.fmt(f),
            Self::Tcp(name) => name.fmt(f),
        }
    }
}

/// What to type instead of a path, or of the kernel's name of a drive.
fn hint(text: &str) -> Option<String> {
    let digits = ["nvme", "ng"].iter().find_map(|prefix| text.strip_prefix(prefix));
    if digits.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit())) {
        return Some(format!("what the kernel's driver has is opened by its path: kernel:/dev/{text}"));
    }
    let path = Path::new(text);
    let is_path = text.starts_with(['/', '.', '~']) || !text.contains(':') && path.exists();
    if text.is_empty() || !is_path {
        return None;
    }
    let kind = std::fs::metadata(path).map(|metadata| metadata.file_type());
    Some(match kind {
        Ok(kind) if kind.is_dir() => format!(
            "a folder is no device; vfio-user:{text} opens the one that is served in it, and with UNVME_HOME={text} its \
             virtual devices are there by their addresses"
        ),
        Ok(kind) if kind.is_socket() => format!("a socket is opened as vfio-user:{text}"),
        _ => format!("a disk, a partition or a file is opened as kernel:{text}"),
    })
}

fn wrong(name: &str, reason: impl Into<String>) -> Error {
    Error::Name { name: name.into(), reason: reason.into() }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::Size;
    use crate::fabrics::Endpoint;
    use crate::registry::{BlockBytes, DeviceType, FtlSpec, KeyspaceField, MediaKind};

    use super::*;

    fn parse(text: &str) -> Option<DeviceName> {
        DeviceName::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"))
    }

    #[test]
    fn names_say_which_transport_they_mean() {
        let address = PciAddress { domain: 0, bus: 2, device: 0, function: 0 };
        assert_eq!(parse("02:00.0"), Some(DeviceName::Address(address)));
        assert_eq!(parse("0000:02:00.0"), Some(DeviceName::Address(address)));
        assert_eq!(parse("vfio-user:/run/a b:c"), Some(DeviceName::VfioUser("/run/a b:c".into())));
        assert_eq!(parse("kernel:/dev/ng0n1"), Some(DeviceName::Kernel("/dev/ng0n1".into())));
        let plain = MemoryDevice::new(DeviceType::Block, Size(1 << 30));
        assert_eq!(parse("mem:block:1G"), Some(DeviceName::Memory(plain.clone())));
        assert_eq!(parse("mem:block:1G,ftl=none,timing=none"), Some(DeviceName::Memory(plain.clone())));
        let null = MemoryDevice { block_bytes: BlockBytes::B4096, media: MediaKind::Null, ..plain.clone() };
        assert_eq!(parse("mem:block:1G,media=null,block=4096"), Some(DeviceName::Memory(null)));
        let pairs = MemoryDevice::new(DeviceType::Kv, Size(1 << 30));
        assert_eq!(parse("mem:kv:1G"), Some(DeviceName::Memory(pairs.clone())));
        let vendor = MemoryDevice { keyspace_field: KeyspaceField::Nsid, ..pairs };
        assert_eq!(parse("mem:kv:1G,keyspace=nsid"), Some(DeviceName::Memory(vendor)));
        let timed = MemoryDevice { timing: "tlc".parse().expect("a preset"), ..plain.clone() };
        assert_eq!(parse("mem:block:1G,timing=tlc"), Some(DeviceName::Memory(timed)));
        let flash = FtlSpec {
            unit_bytes: 2 << 20,
            groups: 2,
            handles: 4,
            fdp: Some(1),
            ..FtlSpec::new(Size(1 << 30))
        };
        let flash = MemoryDevice { ftl: Some(flash), media: MediaKind::Tags, ..plain };
        let name = "mem:block:1G,fdp=1,ru=2M,groups=2,handles=4,media=tags";
        assert_eq!(parse(name), Some(DeviceName::Memory(flash)));
        for text in ["", "nvme", "0000-02-00.0", "x:y", ":", "nothing"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn paths_and_the_kernels_names_say_what_to_type() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name).display().to_string();
        let _listener = std::os::unix::net::UnixListener::bind(path("cntrl")).expect("a socket");
        let here = folder.path().display();
        for (text, hint) in [
            ("nvme0".to_owned(), "kernel:/dev/nvme0".to_owned()),
            ("ng0n1".to_owned(), "kernel:/dev/ng0n1".to_owned()),
            ("/dev/nvme0n1".to_owned(), "kernel:/dev/nvme0n1".to_owned()),
            (here.to_string(), format!("vfio-user:{here} ")),
            (path("cntrl"), format!("vfio-user:{here}/cntrl")),
        ] {
            let error = DeviceName::parse(&text).expect_err(&text).to_string();
            assert!(error.contains(&hint), "`{hint}` is not in: {error}");
        }
    }

    #[test]
    fn names_of_devices_in_memory_are_written_as_they_are_read() {
        for (text, shown) in [
            ("mem:block:1G", "mem:block:1G,block=512"),
            ("mem:block:1G,media=null,block=4096", "mem:block:1G,block=4096,media=null"),
            ("mem:kv:1G,keyspace=nsid", "mem:kv:1G,keyspace=nsid"),
            ("mem:kv:1G", "mem:kv:1G"),
            ("mem:kv:1G,timing=optane", "mem:kv:1G,timing=optane"),
            (
                "mem:block:1G,timing=tlc:dies=16:read=40us/50us:prog=0.7ms,block=4096",
                "mem:block:1G,block=4096,timing=tlc:prog=700us:dies=16:read=40us/50us/0ns/0ns",
            ),
            (
                "mem:block:1G,ftl=page",
                "mem:block:1G,block=512,ftl=page,op=18%,ru=1M,groups=1,handles=8,policy=greedy",
            ),
            (
                "mem:block:8G,op=7.5%,ru=4M,groups=2,handles=2,fdp,policy=d-choice,timing=tlc,media=tags",
                "mem:block:8G,block=512,media=tags,ftl=page,op=7.5%,ru=4M,groups=2,handles=2,policy=d-choice:8,fdp=0,timing=tlc",
            ),
            ("mem:kv:1G,op=0.28", "mem:kv:1G,ftl=page,op=28%,ru=1M,groups=1,handles=8,policy=greedy"),
        ] {
            let device = parse(text).expect(text);
            assert_eq!(device.to_string(), shown);
            assert_eq!(parse(shown), Some(device), "{text}");
        }
    }

    #[test]
    fn names_of_subsystems_on_other_machines_are_written_as_they_are_read() {
        let plain = TcpName::new(Endpoint::new("10.0.0.1", 4420), "nqn.2014-08.org.example:ssd/1");
        assert_eq!(parse("tcp:10.0.0.1:4420/nqn.2014-08.org.example:ssd/1"), Some(DeviceName::Tcp(plain)));
        let all = TcpName {
            header_digest: true,
            data_digest: true,
            keep_alive: Some(Duration::from_secs(5)),
            reconnect: Some(Duration::ZERO),
            ..TcpName::new(Endpoint::new("fe80::1%eth0", 4421), "nqn.a")
        };
        let name = "tcp:[fe80::1%eth0]:4421/nqn.a,hdgst,ddgst,keep-alive=5,reconnect=0";
        assert_eq!(parse(name), Some(DeviceName::Tcp(all)));
        for (text, shown) in [
            (name, name),
            ("tcp:storage/nqn.a,ddgst", "tcp:storage:4420/nqn.a,ddgst"),
            ("tcp:[::1]/nqn.a,reconnect=60,hdgst", "tcp:[::1]:4420/nqn.a,hdgst,reconnect=60"),
        ] {
            let device = parse(text).expect(text);
            assert_eq!(device.to_string(), shown);
            assert_eq!(parse(shown), Some(device), "{text}");
        }
    }

    #[test]
    fn wrong_names_say_what_was_expected() {
        for (text, expected) in [
            ("mem:", "expected mem:block:SIZE"),
            ("mem:block", "`` is not a size"),
            ("mem:block:", "`` is not a size"),
            ("mem:block:1X", "`1X` is not a size"),
            ("mem:block:1K", "SIZE is 2M to 8T in steps of 2M, not 1K"),
            ("mem:block:3M", "SIZE is 2M to 8T in steps of 2M, not 3M"),
            ("mem:block:16T", "SIZE is 2M to 8T in steps of 2M, not 16T"),
            ("mem:block:1G,", "`` is no option"),
            ("mem:block:1G,block", "`block` is no option"),
            ("mem:block:1G,block=1024", "block: a logical block has 512 or 4096 bytes, not 1024"),
            ("mem:block:1G,block=512,block=512", "`block=512` is no option"),
            ("mem:block:1G,media=tape", "media: expected memory, null or tags, not `tape`"),
            ("mem:block:1G,media=tags", "`media`: only a device with an ftl keeps tags of its pages"),
            ("mem:block:1G,ftl=page,media=null", "`media`: a device with an ftl keeps its data"),
            ("mem:block:1G,ftl", "`ftl` is no option"),
            ("mem:block:1G,ftl=block", "ftl: expected page or none, not `block`"),
            ("mem:block:1G,ftl=none,op=7%", "ftl: the other options ask for a translation layer"),
            ("mem:block:1G,op", "`op` is no option; expected block=512, "),
            ("mem:block:1G,op=7%,op=8%", "`op=8%` is no option"),
            ("mem:block:1G,op=a lot", "op: `a lot` is no share, expected one such as 18% or 0.18"),
            ("mem:block:1G,op=500%", "op: overprovisioning is 0.1% to 400% (0.001 to 4), not 500%"),
            (
                "mem:block:1G,ru=1000",
                "`ftl`: a reclaim unit (unit_bytes) has 64K to 16G in steps of 4K, not 1000",
            ),
            ("mem:block:1G,ru=x", "ru: `x` is not a size"),
            ("mem:block:1G,groups=0", "`ftl`: a device has 1 to 64 reclaim groups (groups), not 0"),
            ("mem:block:1G,groups=+1", "groups: expected a small number, not `+1`"),
            (
                "mem:block:1G,handles=129",
                "`ftl`: a device has 1 to 128 reclaim unit handles (handles), not 129",
            ),
            ("mem:block:1G,policy=lru", "policy: expected greedy, cost-benefit, fifo, d-choice or "),
            ("mem:block:1G,fdp=256", "fdp: expected a small number, not `256`"),
            ("mem:kv:2M", "SIZE is 16M to 8T in steps of 2M, not 2M"),
            ("mem:kv:1G,block=512", "`block=512` is no option; expected keyspace=nsid"),
            ("mem:kv:1G,media=null", "`media=null` is no option; expected keyspace=nsid, ftl=page, "),
            ("mem:kv:1G,keyspace=2", "keyspace: expected cdw3 or nsid, not `2`"),
            ("mem:tape:1G", "expected mem:block:SIZE or mem:kv:SIZE"),
            ("vfio-user:", "expected the path of a socket"),
            ("kernel:", "expected a path, such as kernel:/dev/ng0n1"),
            ("tcp:", "expected tcp:HOST:PORT/NQN"),
            ("tcp:host:4420", "expected tcp:HOST:PORT/NQN"),
            ("tcp:/nqn.a", "expected an address and a port"),
            ("tcp:host:0/nqn.a", "port 0 is nobody's"),
            ("tcp:fe80::1:4420/nqn.a", "such as 10.0.0.1:4420 or [fe80::1]:4420"),
            ("tcp:host:4420/ssd", "`ssd` is no NQN; expected up to 223 bytes"),
            ("tcp:host:4420/nqn.a b", "is no NQN"),
            ("tcp:host/nqn.2014-08.org.nvmexpress.discovery", "ask it with `unvme discover host:4420`"),
            ("tcp:host/nqn.a,", "`` is no option; expected hdgst, ddgst, "),
            ("tcp:host/nqn.a,hdgst,hdgst", "`hdgst` is no option"),
            ("tcp:host/nqn.a,hdgst=1", "`hdgst=1` is no option"),
            ("tcp:host/nqn.a,keep-alive", "`keep-alive` is no option"),
            ("tcp:host/nqn.a,keep-alive=-1", "keep-alive: expected 0 to 86400 seconds, not `-1`"),
            ("tcp:host/nqn.a,reconnect=86401", "reconnect: expected 0 to 86400 seconds, not `86401`"),
        ] {
            let message = DeviceName::parse(text).expect_err(text).to_string();
            assert!(message.starts_with(text) && message.contains(expected), "{text}: {message}");
        }
    }

    #[test]
    fn a_timing_that_cannot_be_says_what_can() {
        for (text, expected) in [
            ("mem:block:1G,timing=mlc", "timing: expected none, dram, optane, tlc, qlc, not `mlc`"),
            ("mem:block:1G,timing=tlc:prog=2h", "timing: prog: expected 0ns to 1s, not `2h`"),
            (
                "mem:block:1G,timing=tlc:dies=12",
                "timing: dies: 12 are not possible; expected a multiple of the 8",
            ),
            ("mem:block:1G,timing=tlc:mlc=1", "timing: `mlc` is no parameter; expected link-read"),
            (
                "mem:block:1G,timing=none:prog=1us",
                "timing: `prog=1us`: without a model there are no parameters",
            ),
            ("mem:block:1G,timing=tlc,dies=16", "`dies=16` is a parameter of the timing: timing=tlc:dies=16"),
        ] {
            let message = DeviceName::parse(text).expect_err(text).to_string();
            assert!(message.starts_with(text) && message.contains(expected), "{text}: {message}");
        }
    }
}
