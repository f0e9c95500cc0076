//! The process of a server, as its clients see it: by its number, which is one of a PID namespace.

use super::identity::has_ended;
use super::wire::Number;

/// A process whose end can be seen in `/proc`. Where `/proc` is another one, of another PID namespace or
/// behind `chroot`, its number is another process's, or no process's, and says nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pid: u32,
    /// The file system at `/proc`, by its device number.
    proc: u64,
}

fn proc_device() -> Option<u64> {
    rustix::fs::stat("/proc/self").ok().map(|found| found.st_dev)
}

/// Whether `/proc` has the numbers of this process's own namespace.
fn is_proc_own() -> bool {
    let own = std::process::id().to_string();
    rustix::fs::readlink("/proc/self", Vec::new()).is_ok_and(|found| found.as_bytes() == own.as_bytes())
}

impl Seen {
    /// None where its end cannot be seen.
    pub(super) fn new(number: Number) -> Option<Self> {
        let is_of_ours = number.namespace != 0 && number.namespace == Number::own().namespace;
        let proc = proc_device().filter(|_| is_of_ours && is_proc_own())?;
        (!has_ended(number.pid)).then_some(Self { pid: number.pid, proc })
    }

    /// Whether it is known to have ended.
    pub(super) fn has_ended(&self) -> bool {
        has_ended(self.pid) && proc_device() == Some(self.proc)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_process_of_another_namespace_is_not_seen() {
        let own = Number::own();
        let seen = Seen::new(own).expect("this process");
        assert!(!seen.has_ended());
        assert_eq!(Seen::new(Number { namespace: own.namespace + 1, ..own }), None);
        assert_eq!(Seen::new(Number { namespace: 0, ..own }), None);
        // No process has this number; behind another /proc that says nothing.
        let gone = Seen { pid: i32::MAX as u32, ..seen };
        assert!(gone.has_ended());
        assert!(!Seen { proc: seen.proc + 1, ..gone }.has_ended());
    }
}
