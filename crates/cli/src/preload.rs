//! Programs that are run with a library before their others: where both are.

use std::env;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};

use crate::exit::usage;

/// The file of a program, as a shell finds it; `advice` is what else is said when there is none.
pub(crate) fn find_program(program: &OsStr, advice: &str) -> Result<PathBuf> {
    let path = Path::new(program);
    if path.components().count() > 1 {
        return Ok(path.to_owned());
    }
    let places = env::var_os("PATH").unwrap_or_default();
    let is_program = |file: &PathBuf| {
        file.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    let found = env::split_paths(&places).map(|place| place.join(path)).find(is_program);
    found.ok_or_else(|| usage(format!("{}: there is no such program in $PATH{advice}", path.display())))
}

/// A library that programs are run with.
pub(crate) struct Library {
    pub(crate) file: &'static str,
    /// The environment variable with its folder.
    pub(crate) variable: &'static str,
    /// Where it is built, from the folder above this program's on.
    pub(crate) built: Option<&'static str>,
    /// The word of `make` that builds it.
    pub(crate) word: &'static str,
}

impl Library {
    /// The folder that it is in, whose name the loader takes.
    pub(crate) fn find(&self) -> Result<PathBuf> {
        let Self { file, variable, word, .. } = self;
        let own = env::current_exe().context("find this program")?;
        let folder = own.parent().unwrap_or(Path::new("/"));
        let above = folder.parent().unwrap_or(Path::new("/"));
        let places = match env::var_os(variable) {
            Some(folder) => vec![PathBuf::from(folder)],
            None => {
                let built = self.built.map_or(folder.to_owned(), |built| above.join(built));
                vec![above.join("lib/unvme"), built]
            }
        };
        let found = places.iter().find(|place| place.join(file).is_file()).cloned();
        let found = found.ok_or_else(|| {
            let places: Vec<_> = places.iter().map(|place| place.display().to_string()).collect();
            let places = places.join(", nor in ");
            anyhow!(
                "{file} is not in {places}; `make {word}` builds it, and {variable}=FOLDER says where it is"
            )
        })?;
        // Programs that it starts, and those that they do, may be in another folder.
        let found = std::path::absolute(&found).with_context(|| format!("find {}", found.display()))?;
        if found.as_os_str().as_bytes().iter().any(|byte| b" :".contains(byte)) {
            return Err(usage(format!(
                "{}: the loader takes no folder with a space or a colon in its name; {variable}=FOLDER names another one",
                found.display()
            )));
        }
        Ok(found)
    }
}
