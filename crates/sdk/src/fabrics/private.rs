//! Files with secrets in them: nobody but their owner reads them.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::process::geteuid;

use super::keys::{PSK_PREFIX, SECRET_PREFIX};
use crate::registry::OTHERS;
use crate::{Error, Result};

/// Bytes that a file with secrets can have: a longer one is something else.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The text of a file that belongs to this user, or to root, and that nobody else reads; `None` when there is
/// none.
///
/// # Errors
/// [`Error::Setup`] with the command that helps when somebody else could read or replace it; [`Error::Io`];
/// [`Error::Argument`] for one that is too long or no text, and for a key in place of a path, which is not
/// repeated.
pub fn read_private(path: &Path) -> Result<Option<String>> {
    let words = path.to_string_lossy();
    if [SECRET_PREFIX, PSK_PREFIX].iter().any(|prefix| words.starts_with(prefix)) {
        let reason = "a key was given where the path of a file is expected, and others may have seen it: make a new one";
        return Err(Error::Argument(reason.to_owned()));
    }
    let file = match File::open(path) {
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
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|e| Error::file("read", path, e))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(Error::Argument(format!("{}: more than {FILE_BYTES_MAX} bytes", path.display())));
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Some(text)),
        Err(_) => Err(Error::Argument(format!("{}: the text is not UTF-8", path.display()))),
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
        assert_eq!(read_private(&path).expect("no file"), None);
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
    fn what_is_no_text_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("keys");
        fs::write(&path, [0xff, 0xfe]).expect("a file");
        fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("mode");
        assert!(read_private(&path).expect_err("no text").to_string().contains("not UTF-8"));
    }
}
