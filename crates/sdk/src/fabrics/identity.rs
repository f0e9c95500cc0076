//! Who this host is to targets.

use std::fmt;
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::path::Path;

use unvme_bus::random;
use unvme_driver::HostIdentity;

use crate::name::check_nqn;
use crate::{Error, Registry, Result, system_root};

/// What the NQN of a host with a UUID starts with (Base 4.7).
const UUID_NQN: &str = "nqn.2014-08.org.nvmexpress:uuid:";
/// Where the kernel's tools keep the name of this host, from the root on.
const SYSTEM_NQN: &str = "etc/nvme/hostnqn";
/// Where they keep its identifier.
const SYSTEM_ID: &str = "etc/nvme/hostid";
/// The file with the name of this host in the folder of the virtual devices.
const OWN_NQN: &str = "hostnqn";
/// The most that is read of any of them.
const TEXT_BYTES_MAX: u64 = 4096;

/// A UUID (RFC 9562).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Uuid([u8; 16]);

impl Uuid {
    /// A random one, version 4.
    fn random() -> std::io::Result<Self> {
        let mut bytes = [0; 16];
        random::fill(&mut bytes)?;
        bytes[6] = bytes[6] & 0x0f | 0x40;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        Ok(Self(bytes))
    }

    /// 32 hexadecimal digits with hyphens in their places.
    fn parse(text: &str) -> Option<Self> {
        let hyphens = [8, 13, 18, 23];
        let right = text.len() == 36
            && text.bytes().enumerate().all(|(at, byte)| match hyphens.contains(&at) {
                true => byte == b'-',
                false => byte.is_ascii_hexdigit(),
            });
        let digits = text.replace('-', "");
        let number = u128::from_str_radix(&digits, 16).ok()?;
        right.then(|| Self(number.to_be_bytes()))
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{:032x}", u128::from_be_bytes(self.0));
        let (a, b, c, d, e) = (&text[..8], &text[8..12], &text[12..16], &text[16..20], &text[20..]);
        write!(f, "{a}-{b}-{c}-{d}-{e}")
    }
}

/// Who this machine is to targets: what `/etc/nvme/hostnqn` and `/etc/nvme/hostid` say, so that they see one
/// host whoever of it comes; where those are not, an identity that is made once and kept in the folder of the
/// virtual devices.
///
/// # Errors
/// [`Error::Argument`] for a file that holds something else; [`Error::Io`].
pub fn host_identity(registry: &Registry) -> Result<HostIdentity> {
    find(&system_root().unwrap_or_else(|| "/".into()), registry)
}

fn find(root: &Path, registry: &Registry) -> Result<HostIdentity> {
    let (nqn_path, id_path) = (root.join(SYSTEM_NQN), root.join(SYSTEM_ID));
    if let Some(nqn) = line_of(&nqn_path)? {
        check_nqn(&nqn).map_err(|reason| Error::Argument(format!("{}: {reason}", nqn_path.display())))?;
        let id = match line_of(&id_path)? {
            Some(text) => Uuid::parse(&text).ok_or_else(|| not_a_uuid(&id_path, &text))?,
            None => uuid_of(&nqn).ok_or_else(|| not_a_uuid(&nqn_path, &nqn))?,
        };
        return Ok(HostIdentity { nqn, id: id.0 });
    }
    let path = registry.home().join(OWN_NQN);
    let nqn = match line_of(&path)? {
        Some(nqn) => nqn,
        None => make(&path)?,
    };
    let id = uuid_of(&nqn).ok_or_else(|| not_a_uuid(&path, &nqn))?;
    Ok(HostIdentity { nqn, id: id.0 })
}

fn uuid_of(nqn: &str) -> Option<Uuid> {
    Uuid::parse(nqn.strip_prefix(UUID_NQN)?)
}

fn not_a_uuid(path: &Path, text: &str) -> Error {
    Error::Argument(format!(
        "{}: `{text}`: expected a UUID such as f81d4fae-7dec-11d0-a765-00a0c91e6bf6, in the name of a host behind {UUID_NQN}",
        path.display()
    ))
}

/// The text of a file of one line; `None` when it is not there or empty.
fn line_of(path: &Path) -> Result<Option<String>> {
    let mut text = String::new();
    match File::open(path).and_then(|file| file.take(TEXT_BYTES_MAX).read_to_string(&mut text)) {
        Ok(_) => Ok(Some(text.trim().to_owned()).filter(|text| !text.is_empty())),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(Error::file("read", path, e)),
    }
}

/// Makes the file with a new name, unless somebody else does so meanwhile: then that name is the one.
fn make(path: &Path) -> Result<String> {
    let uuid = Uuid::random().map_err(|e| Error::file("make", path, e))?;
    let nqn = format!("{UUID_NQN}{uuid}");
    let failed = |e| Error::file("create", path, e);
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    // Nobody else's, whichever thread or process makes one at the same time.
    let new = path.with_extension(format!("new-{uuid}"));
    let written = File::create(&new).and_then(|mut file| {
        file.write_all(format!("{nqn}\n").as_bytes())?;
        file.sync_all()
    });
    // A link, not a rename: whole or not at all, and the first one stays.
    let linked = written.and_then(|()| fs::hard_link(&new, path));
    // What stays behind is read by nobody.
    let _ = fs::remove_file(&new);
    match linked {
        Ok(()) => Ok(nqn),
        Err(e) if e.kind() == ErrorKind::AlreadyExists => Ok(line_of(path)?.unwrap_or_default()),
        Err(e) => Err(failed(e)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NQN: &str = "nqn.2014-08.org.nvmexpress:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6";
    const ID: [u8; 16] =
        [0xf8, 0x1d, 0x4f, 0xae, 0x7d, 0xec, 0x11, 0xd0, 0xa7, 0x65, 0x00, 0xa0, 0xc9, 0x1e, 0x6b, 0xf6];

    fn machine(files: &[(&str, &str)]) -> (tempfile::TempDir, Registry) {
        let folder = tempfile::tempdir().expect("a folder");
        for (path, text) in files {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            fs::write(path, text).expect("a file");
        }
        let home = Registry::at(folder.path().join("home"));
        (folder, home)
    }

    #[test]
    fn a_host_has_the_name_that_the_kernels_tools_gave_it() {
        let (folder, home) = machine(&[("etc/nvme/hostnqn", &format!("{NQN}\n"))]);
        assert_eq!(find(folder.path(), &home).expect("found"), HostIdentity { nqn: NQN.into(), id: ID });
        let (folder, home) = machine(&[
            ("etc/nvme/hostnqn", "nqn.2014-08.org.example:me"),
            ("etc/nvme/hostid", "f81d4fae-7dec-11d0-a765-00a0c91e6bf6\n"),
        ]);
        let found = find(folder.path(), &home).expect("found");
        assert_eq!((found.nqn.as_str(), found.id), ("nqn.2014-08.org.example:me", ID));
        assert!(!home.home().exists(), "nothing is made then");
    }

    #[test]
    fn a_host_without_a_name_is_given_one_that_it_keeps() {
        let (folder, home) = machine(&[]);
        let made = find(folder.path(), &home).expect("made");
        assert!(made.nqn.starts_with(UUID_NQN), "{}", made.nqn);
        assert_eq!((made.id[6] >> 4, made.id[8] >> 6), (4, 2), "a random UUID of RFC 9562");
        assert_eq!(find(folder.path(), &home).expect("kept"), made);
        let (second, other) = machine(&[]);
        assert_ne!(find(second.path(), &other).expect("made").id, made.id);
        assert_eq!(fs::read_dir(home.home()).expect("a folder").count(), 1, "nothing else is left");
    }

    #[test]
    fn threads_that_make_a_name_at_once_agree_on_one() {
        for _ in 0..20 {
            let (folder, home) = machine(&[]);
            let start = std::sync::Barrier::new(8);
            let made = std::thread::scope(|scope| {
                let make = || {
                    start.wait();
                    find(folder.path(), &home).expect("made").nqn
                };
                let threads: Vec<_> = (0..8).map(|_| scope.spawn(make)).collect();
                threads.into_iter().map(|thread| thread.join().expect("no panic")).collect::<Vec<_>>()
            });
            assert!(made.iter().all(|nqn| *nqn == made[0]), "{made:?}");
            assert_eq!(fs::read_dir(home.home()).expect("a folder").count(), 1, "nothing else is left");
        }
    }

    #[test]
    fn wrong_names_of_hosts_are_told_with_their_file() {
        for (files, part) in [
            (&[("etc/nvme/hostnqn", "me")][..], "hostnqn: `me` is no NQN"),
            (&[("etc/nvme/hostnqn", "nqn.a")], "hostnqn: `nqn.a`: expected a UUID"),
            (&[("etc/nvme/hostnqn", NQN), ("etc/nvme/hostid", "12")], "hostid: `12`: expected a UUID"),
            (&[("home/hostnqn", "nqn.b")], "home/hostnqn: `nqn.b`: expected a UUID"),
        ] {
            let (folder, home) = machine(files);
            let message = find(folder.path(), &home).expect_err(part).to_string();
            assert!(message.contains(part), "{message}");
        }
    }

    #[test]
    fn uuids_are_written_as_they_are_read() {
        let text = "f81d4fae-7dec-11d0-a765-00a0c91e6bf6";
        assert_eq!(Uuid::parse(text), Some(Uuid(ID)));
        assert_eq!(Uuid(ID).to_string(), text);
        for text in [
            "",
            "f81d4fae7dec11d0a76500a0c91e6bf6",
            "f81d4fae-7dec-11d0-a765-00a0c91e6bfg",
            "+81d4fae-7dec-11d0-a765-00a0c91e6bf6",
        ] {
            assert_eq!(Uuid::parse(text), None, "{text}");
        }
    }
}
