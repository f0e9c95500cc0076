//! Files with secrets in them: nobody but their owner reads them.

use std::fmt;
use std::io::{ErrorKind, Read};
use std::ops::Deref;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::process::geteuid;
use unvme_bus::SecretBytes;

use super::keys::{PSK_PREFIX, SECRET_PREFIX};
use crate::registry::OTHERS;
use crate::{Error, Result, regular};

/// Bytes that a file with secrets can have: a longer one is something else.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The text of a file that belongs to this user, or to root, and that nobody else reads; `None` when there is
/// none.
///
/// # Errors
/// [`Error::Setup`] with the command that helps when somebody else could read or replace it; [`Error::Io`];
/// [`Error::Argument`] for one that is too long or no text, and for a key in place of a path, which is not
/// repeated.
pub fn read_private(path: &Path) -> Result<Option<SecretText>> {
    let words = path.to_string_lossy();
    if [SECRET_PREFIX, PSK_PREFIX].iter().any(|prefix| words.starts_with(prefix)) {
        let reason = "a key was given where the path of a file is expected, and others may have seen it: make a new one";
        return Err(Error::Argument(reason.to_owned()));
    }
    let file = match regular::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(Error::file("open", path, e)),
    };
    // Of what was opened: the path may lead elsewhere by now.
    let found = file.metadata().map_err(|e| Error::file("inspect", path, e))?;
    let me = geteuid().as_raw();
    if found.uid() != me && found.uid() != 0 {
        return Err(Error::Setup {
            problem: format!("{}: secrets in a file of user {}", path.display(), found.uid()),
            remedy: format!("it has to belong to user {me}, or to root"),
        });
    }
    if found.mode() & OTHERS != 0 {
        return Err(Error::Setup {
            problem: format!(
                "{}: others can read or change it (mode {:o})",
                path.display(),
                found.mode() & 0o7777
            ),
            remedy: format!("chmod 600 {}", path.display()),
        });
    }
    let failed = |e| Error::file("read", path, e);
    let text = SecretText::read(file, found.len(), FILE_BYTES_MAX).map_err(failed)?;
    text.map(Some).map_err(|wrong| Error::Argument(format!("{}: {wrong}", path.display())))
}

/// Text with secrets in it, in memory that no core dump has and that is cleared when it is dropped.
pub struct SecretText {
    bytes: SecretBytes,
    /// How many of them are the text: UTF-8.
    len: usize,
}

/// Why bytes are no text with secrets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoSecretText {
    /// It is longer than such a text is.
    #[error("more than {0} bytes")]
    Long(u64),
    /// It is not UTF-8.
    #[error("the text is not UTF-8")]
    NotUtf8,
}

impl SecretText {
    /// Reads all there is, at most `bytes_max`; `expected` bytes are read without a copy. Errors: outside,
    /// those of the reader; inside, what is wrong with the text.
    pub fn read(
        mut from: impl Read,
        expected: u64,
        bytes_max: u64,
    ) -> std::io::Result<std::result::Result<Self, NoSecretText>> {
        let room = |bytes: u64| SecretBytes::zeroed(bytes.min(bytes_max) as usize + 1);
        let (mut bytes, mut len) = (room(expected), 0);
        loop {
            match from.read(bytes.get_mut(len..).unwrap_or_default()) {
                Ok(0) => break,
                Ok(count) => len += count,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
            if len as u64 > bytes_max {
                return Ok(Err(NoSecretText::Long(bytes_max)));
            }
            if len == bytes.len() {
                let mut larger = room(2 * len as u64);
                larger.iter_mut().zip(bytes.iter()).for_each(|(to, from)| *to = *from);
                bytes = larger;
            }
        }
        let is_text = bytes.get(..len).is_some_and(|text| std::str::from_utf8(text).is_ok());
        Ok(if is_text { Ok(Self { bytes, len }) } else { Err(NoSecretText::NotUtf8) })
    }
}

impl Deref for SecretText {
    type Target = str;

    fn deref(&self) -> &str {
        self.bytes.get(..self.len).and_then(|text| std::str::from_utf8(text).ok()).unwrap_or_default()
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretText({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_that_others_read_is_refused_with_the_command_that_helps() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("keys");
        assert!(read_private(&path).expect("no file").is_none());
        fs::write(&path, "secret").expect("a file");
        for mode in [0o644, 0o640, 0o620, 0o604] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).expect("mode");
            let refused = read_private(&path).expect_err("readable").to_string();
            assert!(refused.contains(&format!("mode {mode:o}")), "{refused}");
            assert!(refused.contains("chmod 600 ") && !refused.contains("secret"), "{refused}");
        }
        for mode in [0o600, 0o400] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).expect("mode");
            assert_eq!(read_private(&path).expect("private").as_deref(), Some("secret"));
        }
    }

    #[test]
    fn text_of_any_length_is_read_whole_whatever_length_was_expected() {
        for len in [0, 1, 63, 64, 65, 5000] {
            let text = "x".repeat(len);
            for expected in [0, 1, len as u64, 10_000] {
                let read = SecretText::read(text.as_bytes(), expected, 5000).expect("read").expect("text");
                assert_eq!(&*read, text, "{expected} bytes expected");
            }
        }
        let long = SecretText::read(&[b'x'; 5001][..], 0, 5000).expect("read");
        assert_eq!(long.err(), Some(NoSecretText::Long(5000)));
        assert_eq!(format!("{:?}", SecretText::read(&b"abc"[..], 3, 9)), "Ok(Ok(SecretText(3 bytes)))");
    }

    #[test]
    fn what_is_no_text_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("keys");
        fs::write(&path, [0xff, 0xfe]).expect("a file");
        fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("mode");
        assert!(read_private(&path).expect_err("no text").to_string().contains("not UTF-8"));
    }
}
