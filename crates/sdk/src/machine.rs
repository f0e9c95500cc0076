//! Where this machine's own trees are.

use std::env;
use std::path::PathBuf;

/// Environment variable that names a folder to stand for `/` when drives are looked for and set up, and this
/// host's name is read, so that everything can be tried on a copy of `/sys`, `/proc`, `/dev` and `/etc`. Not
/// set: the machine itself.
pub const SYSTEM_ROOT_VARIABLE: &str = "UNVME_SYSTEM_ROOT";

/// The folder that [`SYSTEM_ROOT_VARIABLE`] names; `None` for the machine itself.
pub fn system_root() -> Option<PathBuf> {
    env::var_os(SYSTEM_ROOT_VARIABLE).filter(|root| !root.is_empty()).map(PathBuf::from)
}
