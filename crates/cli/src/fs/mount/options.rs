//! The options of `-o`: each keyword is carried out, consumed as mount(8) defines it, or refused.

use std::path::Path;
use std::thread;

use anyhow::Result;
use fuser::{MountOption, SessionACL};
use rustix::mount::MountFlags;
use unvme_fs::{CacheOptions, MountOptions, Policy};

use crate::exit::usage;
use crate::numbers;

/// Most threads that serve the kernel.
const THREADS_MAX: usize = 1024;

/// Which changes are durable when the call that makes them returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Synchronous {
    /// None: a program calls `fsync`.
    #[default]
    Nothing,
    /// Changes of names (`dirsync`).
    Names,
    /// Every change (`sync`).
    Everything,
}

/// The caller of the command, whose defaults differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Caller {
    /// A user: set-user-id programs and device nodes have no effect without `suid` and `dev`.
    User,
    /// mount(8), which passes `nosuid` and `nodev`, but never their opposites, and has expanded `user` and
    /// its like.
    Mount8 {
        /// Unknown options are ignored (`-s`).
        is_sloppy: bool,
    },
}

/// What the options of `-o` ask for.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) mount: MountOptions,
    pub(super) flags: MountFlags,
    pub(super) acl: SessionACL,
    pub(super) threads: usize,
    pub(super) is_foreground: bool,
    pub(super) synchronous: Synchronous,
    is_atime: bool,
    is_diratime: bool,
    /// `suid` or `dev`, the last one of each that was given, for users that may not have it.
    privileged: Vec<&'static str>,
}

/// What a keyword does.
#[derive(Clone, Copy)]
enum Effect {
    /// Sets a flag of mount(2).
    Set(MountFlags),
    /// Clears a flag of mount(2).
    Clear(MountFlags),
    /// Sets several flags, when the user gives it and mount(8) has not expanded it.
    Implies(MountFlags),
    /// Calls a function of `Asked`.
    Call(fn(&mut Asked)),
    /// Takes a value: what it must be, and a function that is false when it is invalid.
    Value(&'static str, fn(&mut Asked, &str) -> bool),
    /// Means something to mount(8), fstab(5) or systemd alone, or is the case anyway.
    Consumed,
    /// Is known, and cannot be carried out: why.
    Refused(&'static str),
}

use Effect::{Call, Clear, Consumed, Implies, Refused, Set, Value};

const SAFE: MountFlags = MountFlags::NOSUID.union(MountFlags::NODEV);

/// Every keyword. Those of mount(8) for all types, then those of this type.
const KEYWORDS: &[(&str, Effect)] = &[
    ("ro", Call(|asked| asked.mount.is_read_only = true)),
    ("rw", Call(|asked| asked.mount.is_read_only = false)),
    ("sync", Call(|asked| asked.synchronous = Synchronous::Everything)),
    ("async", Call(|asked| asked.synchronous = Synchronous::Nothing)),
    ("dirsync", Call(|asked| asked.synchronous = asked.synchronous.max(Synchronous::Names))),
    ("atime", Call(|asked| asked.is_atime = true)),
    ("noatime", Call(|asked| asked.is_atime = false)),
    ("diratime", Call(|asked| asked.is_diratime = true)),
    ("nodiratime", Call(|asked| asked.is_diratime = false)),
    ("relatime", Call(|asked| asked.is_atime = true)),
    ("norelatime", Consumed),
    ("strictatime", Refused("reads from the kernel's page cache do not reach the file system; use relatime")),
    ("nostrictatime", Consumed),
    ("lazytime", Set(MountFlags::LAZYTIME)),
    ("nolazytime", Clear(MountFlags::LAZYTIME)),
    ("suid", Call(|asked| asked.allow("suid", MountFlags::NOSUID))),
    ("nosuid", Call(|asked| asked.forbid("suid", MountFlags::NOSUID))),
    ("dev", Call(|asked| asked.allow("dev", MountFlags::NODEV))),
    ("nodev", Call(|asked| asked.forbid("dev", MountFlags::NODEV))),
    ("exec", Clear(MountFlags::NOEXEC)),
    ("noexec", Set(MountFlags::NOEXEC)),
    ("symfollow", Clear(MountFlags::NOSYMFOLLOW)),
    ("nosymfollow", Set(MountFlags::NOSYMFOLLOW)),
    ("silent", Set(MountFlags::SILENT)),
    ("loud", Clear(MountFlags::SILENT)),
    ("defaults", Consumed),
    ("auto", Consumed),
    ("noauto", Consumed),
    ("nofail", Consumed),
    ("_netdev", Consumed),
    ("user", Implies(SAFE.union(MountFlags::NOEXEC))),
    ("users", Implies(SAFE.union(MountFlags::NOEXEC))),
    ("owner", Implies(SAFE)),
    ("group", Implies(SAFE)),
    ("nouser", Consumed),
    ("nousers", Consumed),
    ("noowner", Consumed),
    ("nogroup", Consumed),
    ("nomand", Consumed),
    ("mand", Refused("the kernel has no mandatory locks")),
    ("noiversion", Consumed),
    ("iversion", Refused("inodes have no version")),
    ("remount", Refused("unmount, then mount with the new options")),
    ("allow_other", Call(|asked| asked.acl = SessionACL::All)),
    ("allow_root", Call(|asked| asked.acl = SessionACL::RootAndOwner)),
    ("default_permissions", Consumed),
    ("foreground", Call(|asked| asked.is_foreground = true)),
    ("cache", Value("SIZE", |asked, text| asked.set_cache(text))),
    ("policy", Value("s3fifo, lru or none", |asked, text| asked.set_policy(text))),
    ("threads", Value("1 to 1024", |asked, text| asked.set_threads(text))),
];

/// Keywords that take a value for others: mount(8), udisks, systemd.
const CONSUMED_WITH_VALUE: [&str; 4] = ["user", "comment", "uhelper", "helper"];

impl Asked {
    /// What the words of `-o` ask for, the later ones over the earlier ones.
    ///
    /// # Errors
    /// Names an option that is unknown, has an invalid value, or cannot be carried out.
    pub(super) fn parse<'a>(
        words: impl Iterator<Item = &'a str>,
        caller: Caller,
        is_root: bool,
    ) -> Result<Self> {
        // The helper of a type gets no `suid` and no `dev`: mount(8) leaves out what is its default.
        let is_default = matches!(caller, Caller::Mount8 { .. }) && is_root;
        let mut asked = Self {
            mount: MountOptions::default(),
            flags: if is_default { MountFlags::empty() } else { SAFE },
            acl: SessionACL::Owner,
            threads: thread::available_parallelism().map_or(1, usize::from),
            is_foreground: false,
            synchronous: Synchronous::Nothing,
            is_atime: true,
            is_diratime: true,
            privileged: Vec::new(),
        };
        for word in words.filter(|word| !word.is_empty()) {
            asked.apply(word, caller)?;
        }
        if !is_root && let Some(word) = asked.privileged.first() {
            return Err(usage(format!("-o {word}: only root can mount with it")));
        }
        asked.settle();
        Ok(asked)
    }

    /// Derives the flags of mount(2) that several keywords decide.
    fn settle(&mut self) {
        self.mount.keeps_access_times = self.is_atime;
        self.mount.keeps_directory_access_times = self.is_atime && self.is_diratime;
        self.flags.set(MountFlags::RDONLY, self.mount.is_read_only);
        self.flags.set(MountFlags::NOATIME, !self.is_atime);
        self.flags.set(MountFlags::NODIRATIME, !self.is_diratime);
        self.flags.set(MountFlags::SYNCHRONOUS, self.synchronous == Synchronous::Everything);
        self.flags.set(MountFlags::DIRSYNC, self.synchronous == Synchronous::Names);
    }

    fn apply(&mut self, word: &str, caller: Caller) -> Result<()> {
        let (name, value) = word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value)));
        if name.starts_with("x-") || name.starts_with("X-") {
            return Ok(());
        }
        if value.is_some() && CONSUMED_WITH_VALUE.contains(&name) {
            return Ok(());
        }
        let known = KEYWORDS.iter().find(|(known, _)| *known == name);
        match (known.map(|(_, effect)| *effect), value) {
            (Some(Value(expected, set)), _) => match value {
                Some(text) if set(self, text) => Ok(()),
                _ => Err(usage(format!("-o {word}: expected {name}={expected}"))),
            },
            (Some(Refused(why)), _) => Err(usage(format!("-o {word}: not supported: {why}"))),
            (Some(_), Some(_)) => Err(usage(format!("-o {word}: {name} takes no value"))),
            (Some(effect), None) => {
                self.carry_out(effect, caller);
                Ok(())
            }
            (None, _) if matches!(caller, Caller::Mount8 { is_sloppy: true }) => {
                tracing::warn!("-o {word}: unknown option, ignored because of -s");
                Ok(())
            }
            (None, _) => Err(usage(unknown(word, name))),
        }
    }

    fn carry_out(&mut self, effect: Effect, caller: Caller) {
        match effect {
            Set(flags) => self.flags.insert(flags),
            Clear(flags) => self.flags.remove(flags),
            Implies(flags) if caller == Caller::User => {
                self.flags.insert(flags);
                self.privileged.clear();
            }
            Call(act) => act(self),
            Implies(_) | Value(..) | Consumed | Refused(_) => {}
        }
    }

    fn allow(&mut self, name: &'static str, flag: MountFlags) {
        self.flags.remove(flag);
        self.privileged.push(name);
    }

    fn forbid(&mut self, name: &'static str, flag: MountFlags) {
        self.flags.insert(flag);
        self.privileged.retain(|allowed| *allowed != name);
    }

    fn set_cache(&mut self, text: &str) -> bool {
        let Some(bytes) = numbers::bytes(text).ok().and_then(|bytes| usize::try_from(bytes).ok()) else {
            return false;
        };
        self.mount.cache = CacheOptions { bytes, ..self.mount.cache };
        true
    }

    fn set_policy(&mut self, text: &str) -> bool {
        Policy::from_name(text).map(|policy| self.mount.cache.policy = policy).is_some()
    }

    fn set_threads(&mut self, text: &str) -> bool {
        let threads = text.parse().ok().filter(|count| (1..=THREADS_MAX).contains(count));
        threads.map(|threads| self.threads = threads).is_some()
    }

    /// The flags in the words of fusermount3, which mounts for users other than root.
    pub(super) fn fusermount_options(&self, source: &Path) -> Vec<MountOption> {
        let mut options = vec![
            MountOption::DefaultPermissions,
            MountOption::FSName(source.to_string_lossy().into_owned()),
            MountOption::Subtype("unvme".into()),
        ];
        let named = [
            (MountFlags::RDONLY, MountOption::RO),
            (MountFlags::NOEXEC, MountOption::NoExec),
            (MountFlags::NOATIME, MountOption::NoAtime),
            (MountFlags::SYNCHRONOUS, MountOption::Sync),
            (MountFlags::DIRSYNC, MountOption::DirSync),
            (MountFlags::NOSYMFOLLOW, MountOption::CUSTOM("nosymfollow".into())),
        ];
        options.extend(
            named.into_iter().filter(|(flag, _)| self.flags.contains(*flag)).map(|(_, option)| option),
        );
        options
    }
}

/// The message about a keyword that is unknown.
fn unknown(word: &str, name: &str) -> String {
    let near = KEYWORDS.iter().map(|(known, _)| *known).min_by_key(|known| distance(known, name));
    let near = near.filter(|known| distance(known, name) <= 2);
    let hint = near.map_or_else(|| "; known".into(), |known| format!("; did you mean {known}? Known"));
    let known = KEYWORDS.iter().filter(|(_, effect)| !matches!(effect, Refused(_)));
    let known: Vec<_> = known
        .map(
            |(known, effect)| if matches!(effect, Value(..)) { format!("{known}=") } else { (*known).into() },
        )
        .collect();
    format!("-o {word}: unknown option{hint} are {}, comment=, x-*", known.join(", "))
}

/// Levenshtein distance of two words, in bytes.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.bytes().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &str, caller: Caller, is_root: bool) -> Result<Asked> {
        Asked::parse(words.split(','), caller, is_root)
    }

    fn flags(words: &str, caller: Caller) -> MountFlags {
        parse(words, caller, true).unwrap().flags
    }

    const HELPER: Caller = Caller::Mount8 { is_sloppy: false };

    #[test]
    fn every_keyword_that_is_not_refused_is_accepted_and_takes_a_value_only_where_one_is_defined() {
        for (name, effect) in KEYWORDS {
            match effect {
                Refused(_) | Value(..) => assert!(parse(name, Caller::User, true).is_err(), "{name}"),
                _ => {
                    parse(name, Caller::User, true).unwrap();
                    if !CONSUMED_WITH_VALUE.contains(name) {
                        assert!(parse(&format!("{name}=1"), Caller::User, true).is_err(), "{name}=1");
                    }
                }
            }
        }
        parse("x-systemd.automount,X-mount.mkdir=0755,comment=a b,user=name,,", Caller::User, true).unwrap();
    }

    #[test]
    fn an_unknown_keyword_is_named_with_the_known_ones() {
        let told = parse("ro,allow_othr", Caller::User, true).unwrap_err().to_string();
        assert!(told.starts_with("-o allow_othr: unknown option; did you mean allow_other?"), "{told}");
        assert!(told.contains("nodiratime") && told.contains("cache="), "{told}");
        let told = parse("subtype=foo", HELPER, true).unwrap_err().to_string();
        assert!(told.starts_with("-o subtype=foo: unknown option; known are ro, rw"), "{told}");
        parse("subtype=foo,allow_othr", Caller::Mount8 { is_sloppy: true }, true).unwrap();
    }

    #[test]
    fn later_keywords_override_earlier_ones() {
        assert!(!flags("ro,rw", Caller::User).contains(MountFlags::RDONLY));
        assert!(flags("rw,ro", Caller::User).contains(MountFlags::RDONLY));
        assert_eq!(parse("sync,async", Caller::User, true).unwrap().synchronous, Synchronous::Nothing);
        assert_eq!(parse("sync,dirsync", Caller::User, true).unwrap().synchronous, Synchronous::Everything);
        let asked = parse("noatime,relatime,nodiratime", Caller::User, true).unwrap();
        assert!(asked.mount.keeps_access_times && !asked.mount.keeps_directory_access_times);
        assert!(flags("user", Caller::User).contains(MountFlags::NOEXEC | SAFE));
        assert_eq!(flags("user,exec,suid", Caller::User) & (SAFE | MountFlags::NOEXEC), MountFlags::NODEV);
    }

    #[test]
    fn set_user_id_and_devices_are_the_default_of_mount_8_and_not_of_the_command() {
        assert_eq!(flags("rw", HELPER) & SAFE, MountFlags::empty());
        assert_eq!(flags("rw,nosuid", HELPER) & SAFE, MountFlags::NOSUID);
        assert_eq!(flags("nosuid,nodev,user", HELPER) & (SAFE | MountFlags::NOEXEC), SAFE);
        assert_eq!(flags("rw", Caller::User) & SAFE, SAFE);
        assert_eq!(flags("suid,dev", Caller::User) & SAFE, MountFlags::empty());
        assert_eq!(parse("rw", HELPER, false).unwrap().flags & SAFE, SAFE);
        assert!(parse("suid", Caller::User, false).is_err());
        parse("suid,nosuid", Caller::User, false).unwrap();
    }
}
