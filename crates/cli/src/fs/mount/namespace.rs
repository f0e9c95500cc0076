//! Mount namespaces: `-N` of mount(8) and umount(8).

use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::thread;

use anyhow::{Context, Result, anyhow};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};

/// Calls a function in a mount namespace: that of a file such as `/proc/1/ns/mnt`, or of the process with
/// this number; the caller's own without one. Only what finds or changes mount points belongs there: devices,
/// locks and configuration are those of the caller's namespace.
///
/// # Errors
/// The namespace cannot be opened or entered.
pub(super) fn in_namespace<R: Send>(
    namespace: Option<&Path>,
    act: impl FnOnce() -> Result<R> + Send,
) -> Result<R> {
    let Some(path) = namespace.map(file_of) else { return act() };
    let file = File::open(&path).with_context(|| format!("-N {}", path.display()))?;
    // A thread of its own enters, and ends there: the others stay.
    let done = thread::scope(|scope| {
        scope
            .spawn(|| {
                enter(&file).with_context(|| format!("-N {}: enter it", path.display()))?;
                act()
            })
            .join()
    });
    done.unwrap_or_else(|_| Err(anyhow!("-N {}: the thread in it has panicked", path.display())))
}

/// The file of a namespace, whatever the working directory will be.
pub(super) fn file_of(namespace: &Path) -> PathBuf {
    let is_pid = namespace.to_str().is_some_and(|text| text.parse::<u32>().is_ok());
    match is_pid {
        true => Path::new("/proc").join(namespace).join("ns/mnt"),
        false => std::path::absolute(namespace).unwrap_or_else(|_| namespace.to_owned()),
    }
}

/// Moves the calling thread.
fn enter(namespace: &File) -> rustix::io::Result<()> {
    // A thread that shares its root and working directory with others cannot change its namespace. Only
    // unsharing descriptors can make the call unsound, and it shares them on.
    #[expect(deprecated, reason = "its successor is unsafe because of flags that are not given here")]
    rustix::thread::unshare(UnshareFlags::FS)?;
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Mount))
}
