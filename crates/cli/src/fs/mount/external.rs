//! The command by the names that mount(8) and umount(8) call it by, with the flags that they pass.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

const MOUNT: [&str; 2] = ["mount.unvme", "mount.fuse.unvme"];
const UMOUNT: [&str; 2] = ["umount.unvme", "umount.fuse.unvme"];

/// Flags of the helper of a type, and what they are to the command; an empty one has no effect: there is no
/// mtab (`-n`), and the helper calls no helper (`-i`).
const MOUNT_FLAGS: [(u8, &str); 7] = [
    (b's', "-s"),
    (b'f', "--fake"),
    (b'n', ""),
    (b'v', "-v"),
    (b'i', ""),
    (b'r', "--read-only"),
    (b'w', "-orw"),
];
const UMOUNT_FLAGS: [(u8, &str); 6] =
    [(b'n', ""), (b'l', "--lazy"), (b'f', "--force"), (b'r', "--read-only"), (b'v', "--verbose"), (b'i', "")];

/// Flags with a value.
const VALUES: &[u8] = b"oNt";

/// Whether a program is the helper that mounts.
pub(super) fn is_mount(program: &OsStr) -> bool {
    MOUNT.iter().any(|name| program == *name)
}

/// What the command was called with, in its own options when a helper was called.
pub(crate) fn translate(words: Vec<OsString>) -> Vec<OsString> {
    let mut words = words.into_iter();
    let Some(program) = words.next() else { return Vec::new() };
    let name = std::path::Path::new(&program).file_name().map(ToOwned::to_owned).unwrap_or_default();
    let (command, flags): (&[&str], &[_]) = if is_mount(&name) {
        (&["unvme", "mount", "--mount8"], &MOUNT_FLAGS)
    } else if UMOUNT.iter().any(|own| name == *own) {
        (&["unvme", "umount"], &UMOUNT_FLAGS)
    } else {
        return std::iter::once(program).chain(words).collect();
    };
    let mut translated: Vec<OsString> = command.iter().map(Into::into).collect();
    while let Some(word) = words.next() {
        match word.as_bytes() {
            b"--" => {
                translated.push(word);
                translated.extend(words.by_ref());
            }
            [b'-', letters @ ..] if !letters.is_empty() && letters[0] != b'-' => {
                expand(letters, flags, &mut words, &mut translated);
            }
            _ => translated.push(word),
        }
    }
    translated
}

/// Flags that stand together, such as `-sfnv`. Those that are unknown are left for the command to refuse.
fn expand(
    letters: &[u8],
    flags: &[(u8, &str)],
    words: &mut impl Iterator<Item = OsString>,
    translated: &mut Vec<OsString>,
) {
    for (at, letter) in letters.iter().enumerate() {
        if VALUES.contains(letter) {
            translated.push(OsString::from_vec(vec![b'-', *letter]));
            let rest = &letters[at + 1..];
            translated.extend(if rest.is_empty() {
                words.next()
            } else {
                Some(OsString::from_vec(rest.to_vec()))
            });
            return;
        }
        match flags.iter().find(|(known, _)| known == letter) {
            Some((_, "")) => {}
            Some((_, option)) => translated.push(option.into()),
            None => translated.push(OsString::from_vec(vec![b'-', *letter])),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn translated(line: &str) -> String {
        let words = translate(line.split(' ').map(Into::into).collect());
        words.iter().map(|word| word.to_str().unwrap()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn the_flags_of_mount_8_and_umount_8_become_the_commands_own() {
        assert_eq!(
            translated("/sbin/mount.fuse.unvme dev /mnt -sfnv -N /proc/1/ns/mnt -o rw,sync -t fuse.unvme"),
            "unvme mount --mount8 dev /mnt -s --fake -v -N /proc/1/ns/mnt -o rw,sync -t fuse.unvme"
        );
        assert_eq!(
            translated("mount.unvme dev /mnt -nrw -oro"),
            "unvme mount --mount8 dev /mnt --read-only -orw -o ro"
        );
        assert_eq!(
            translated("umount.fuse.unvme /mnt -nlfrv"),
            "unvme umount /mnt --lazy --force --read-only --verbose"
        );
        assert_eq!(translated("umount.unvme /mnt -x -- -l"), "unvme umount /mnt -x -- -l");
        assert_eq!(translated("/usr/bin/unvme mount dev /mnt -f"), "/usr/bin/unvme mount dev /mnt -f");
    }
}
