//! Doing the steps of a plan, and undoing them when one fails.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use super::drive::bus_error;
use super::evidence::{Claimed, claim};
use super::huge_pages::count_file;
use super::step::{
    Driver, HugePageCount, LIMITS_FILE, PROBE_FILE, Step, limits_line, override_file, override_text,
    unbind_file,
};
use super::{Drive, Owner, System, kernel_module};
use unvme::{Error, PciAddress, Result};

/// How long the kernel may take to bind a function: usually it has when the write returns.
const BIND_LIMIT: Duration = Duration::from_secs(3);
/// How long device nodes may take to appear after that.
const NODE_LIMIT: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(10);
/// Read and write for the group.
const GROUP_MODE: u32 = 0o060;

/// What brings back what a step has changed.
enum Undo {
    Bind { address: PciAddress, back: Option<String> },
    Count { file: String, count: u64 },
    Node { node: String, uid: u32, gid: u32, mode: u32 },
    Limits { before: Option<String> },
}

/// Does all steps. When one fails, what the others did is undone, and the error says what state the drives
/// are in.
///
/// Returns remarks about what turned out otherwise than asked for.
pub(super) fn run(system: &System, steps: &[Step]) -> Result<Vec<String>> {
    let mut undo = Vec::new();
    let mut remarks = Vec::new();
    for step in steps {
        if let Err(error) = act(system, step, &mut undo, &mut remarks) {
            return Err(undone(system, undo, error));
        }
    }
    Ok(remarks)
}

fn act(system: &System, step: &Step, undo: &mut Vec<Undo>, remarks: &mut Vec<String>) -> Result<()> {
    match step {
        Step::LoadModule(driver) => load(system, *driver),
        Step::HugePages { node, count } => reserve(system, *node, *count, undo, remarks),
        Step::Bind { address, from, to, disks } => {
            let function = system.bus().find(*address).map_err(bus_error)?.ok_or_else(|| gone(*address))?;
            if Drive::describe(system, function).disks() != *disks {
                return Err(Error::Setup {
                    problem: format!("{address}: its block devices are not those that were looked at"),
                    remedy: "run the command again".to_owned(),
                });
            }
            // Held until the kernel's driver has let go: nobody can mount it between the look and the deed.
            let mut claims = Vec::new();
            for disk in disks {
                match claim(system, disk)
                    .map_err(|e| Error::file("claim", &system.path(&format!("/dev/{disk}")), e))?
                {
                    Claimed::Busy => {
                        return Err(Error::DriveInUse {
                            name: address.to_string(),
                            by: format!("{disk} has just been taken by something else"),
                            remedy: "see `unvme setup status`".to_owned(),
                        });
                    }
                    free => claims.push(free),
                }
            }
            undo.push(Undo::Bind { address: *address, back: from.clone() });
            rebind(system, *address, Some(to.name()), override_text(*to), || drop(claims))
        }
        Step::Settle => {
            // Without udev there is nothing to wait for, and a slow one only delays the next step's own
            // waiting.
            let _ = Command::new("udevadm").args(["settle", "--timeout=10"]).status();
            Ok(())
        }
        Step::Give { address, nodes, owner } => give(system, *address, nodes, owner, undo),
        Step::Limits { user } => raise_limit(system, user, undo),
    }
}

fn load(system: &System, driver: Driver) -> Result<()> {
    let failed = |problem: String, remedy: String| Err(Error::Setup { problem, remedy });
    match Command::new("modprobe").arg(driver.name()).output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stderr);
            let why = text.lines().next().unwrap_or("modprobe does not say why").to_owned();
            failed(format!("the module {driver} cannot be loaded: {why}"), kernel_module::remedy(system))
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => failed(
            format!("the module {driver} cannot be loaded: there is no program modprobe"),
            "install the package kmod".to_owned(),
        ),
        Err(e) => Err(Error::Io { what: "run modprobe".to_owned(), source: e }),
    }
}

fn reserve(
    system: &System,
    node: Option<u32>,
    count: HugePageCount,
    undo: &mut Vec<Undo>,
    remarks: &mut Vec<String>,
) -> Result<()> {
    let file = count_file(node);
    let place = node.map_or_else(String::new, |node| format!(" on NUMA node {node}"));
    let Some(before) = system.number(&file) else {
        return Err(Error::Setup {
            problem: format!("the kernel has no huge pages of 2 MiB{place}: no {file}"),
            remedy: "choose another node, or a kernel with CONFIG_HUGETLBFS".to_owned(),
        });
    };
    let wanted = count.pages();
    if before == wanted || (before > wanted && !matches!(count, HugePageCount::Exactly(_))) {
        return Ok(());
    }
    undo.push(Undo::Count { file: file.clone(), count: before });
    write(system, &file, &wanted.to_string())?;
    let got = system.number(&file).unwrap_or(0);
    if let Some(remark) = judge(count, got, &place)? {
        remarks.push(remark);
    }
    Ok(())
}

/// What to say about `got` huge pages where `count` were asked for.
fn judge(count: HugePageCount, got: u64, place: &str) -> Result<Option<String>> {
    let wanted = count.pages();
    let remedy = "end programs that use much memory and make the rest contiguous (echo 1 > /proc/sys/vm/compact_memory), \
                  ask for fewer, or reserve them when the system boots (hugepages=N on the kernel's command line); \
                  for very many raise the number of mappings, too (echo 524240 > /proc/sys/vm/max_map_count)";
    let problem = format!("of {wanted} huge pages of 2 MiB the kernel has only {got} to give{place}");
    match count {
        HugePageCount::Exactly(_) if got > wanted => {
            Ok(Some(format!("{got} huge pages stay{place}: they are in use, and go when their users end")))
        }
        _ if got >= wanted => Ok(None),
        HugePageCount::UpTo(_) if got > 0 => Ok(Some(format!("{problem}; for more, {remedy}"))),
        _ => Err(Error::Setup { problem, remedy: remedy.to_owned() }),
    }
}

/// Takes a function from its driver and has the kernel look for another one: `to`, or none. `let_go` is
/// called when the old driver has let go of it.
fn rebind(
    system: &System,
    address: PciAddress,
    to: Option<&str>,
    override_text: &str,
    let_go: impl FnOnce(),
) -> Result<()> {
    let driver = || -> Result<Option<String>> {
        let function = system.bus().find(address).map_err(bus_error)?;
        function.map(|function| function.driver).ok_or_else(|| gone(address))
    };
    write(system, &override_file(address), override_text).map_err(|e| vanished(system, address, e))?;
    match driver()? {
        current if current.as_deref() == to => {
            let_go();
            return Ok(());
        }
        Some(_) => write(system, &unbind_file(address), &address.to_string())
            .map_err(|e| vanished(system, address, e))?,
        None => {}
    }
    let_go();
    let Some(to) = to else { return Ok(()) };
    write(system, PROBE_FILE, &address.to_string()).map_err(|e| vanished(system, address, e))?;
    wait(BIND_LIMIT, || Ok((driver()?.as_deref() == Some(to)).then_some(())))?.ok_or_else(|| Error::Setup {
        problem: format!("{address}: the kernel did not bind it to {to}"),
        remedy: "its log says why: dmesg | tail".to_owned(),
    })
}

fn gone(address: PciAddress) -> Error {
    Error::Setup {
        problem: format!("{address}: the drive is no longer there"),
        remedy: "see `unvme setup status`".to_owned(),
    }
}

/// The error of a write that failed because the drive was removed is that.
fn vanished(system: &System, address: PciAddress, error: Error) -> Error {
    match system.bus().find(address) {
        Ok(None) => gone(address),
        _ => error,
    }
}

fn give(
    system: &System,
    address: PciAddress,
    nodes: &[String],
    owner: &Owner,
    undo: &mut Vec<Undo>,
) -> Result<()> {
    let id = owner.id(system)?;
    let found = wait(NODE_LIMIT, || {
        let nodes = if nodes.is_empty() { character_nodes(system, address)? } else { nodes.to_vec() };
        Ok((!nodes.is_empty() && nodes.iter().all(|node| system.has(node))).then_some(nodes))
    })?;
    let Some(nodes) = found else {
        return Err(Error::Setup {
            problem: format!("{address}: its device nodes {} did not appear", nodes.join(", ")),
            remedy: "see `unvme setup status`".to_owned(),
        });
    };
    for node in nodes {
        let path = system.path(&node);
        let failed = |e| Error::file("change the owner of", &path, e);
        let before = fs::metadata(&path).map_err(failed)?;
        let mode = before.mode() & 0o7777;
        undo.push(Undo::Node { node, uid: before.uid(), gid: before.gid(), mode });
        match owner {
            Owner::User(_) => chown(&path, Some(id), None).map_err(failed)?,
            Owner::Group(_) => {
                chown(&path, None, Some(id)).map_err(failed)?;
                fs::set_permissions(&path, fs::Permissions::from_mode(mode | GROUP_MODE)).map_err(failed)?;
            }
        }
    }
    Ok(())
}

/// The character devices of a function that the kernel drives: its controller and its namespaces.
fn character_nodes(system: &System, address: PciAddress) -> Result<Vec<String>> {
    let function = system.bus().find(address).map_err(bus_error)?.ok_or_else(|| gone(address))?;
    Ok(Drive::describe(system, function).character_nodes())
}

fn raise_limit(system: &System, user: &str, undo: &mut Vec<Undo>) -> Result<()> {
    let path = system.path(LIMITS_FILE);
    let before = match fs::read_to_string(&path) {
        Ok(text) => Some(text),
        Err(e) if e.kind() == io::ErrorKind::NotFound => None,
        Err(e) => return Err(Error::file("read", &path, e)),
    };
    let line = limits_line(user);
    let mut text = before.clone().unwrap_or_default();
    if text.lines().any(|known| known == line) {
        return Ok(());
    }
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str(&line);
    text.push('\n');
    undo.push(Undo::Limits { before });
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(|e| Error::file("create", folder, e))?;
    }
    fs::write(&path, text).map_err(|e| Error::file("write", &path, e))
}

/// Undoes what was done, last first. The error that caused it, with the state that the drives are in now.
fn undone(system: &System, undo: Vec<Undo>, error: Error) -> Error {
    if undo.is_empty() {
        return error;
    }
    let mut states = Vec::new();
    for change in undo.into_iter().rev() {
        match &change {
            Undo::Bind { address, back } => states.push(bind_back(system, *address, back.as_deref())),
            Undo::Count { file, count } => {
                if let Err(e) = write(system, file, &count.to_string()) {
                    states.push(format!("huge pages stay reserved ({e})"));
                }
            }
            Undo::Node { node, uid, gid, mode } => {
                let path = system.path(node);
                let back = chown(&path, Some(*uid), Some(*gid))
                    .and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(*mode)));
                // A node that went with its driver has no owner any more.
                if let Err(e) = back
                    && e.kind() != io::ErrorKind::NotFound
                {
                    states.push(format!("{node} keeps its new owner ({e})"));
                }
            }
            Undo::Limits { before } => {
                let path = system.path(LIMITS_FILE);
                let back = match before {
                    Some(text) => fs::write(&path, text),
                    None => fs::remove_file(&path),
                };
                if let Err(e) = back {
                    states.push(format!("{LIMITS_FILE} stays ({e})"));
                }
            }
        }
    }
    if states.is_empty() {
        states.push("what had been changed has been changed back".to_owned());
    }
    Error::Setup { problem: error.to_string(), remedy: states.join("; ") }
}

/// Gives a function back to the driver it had; what state it is in now, in words.
fn bind_back(system: &System, address: PciAddress, back: Option<&str>) -> String {
    let override_text = back.filter(|driver| *driver != Driver::Nvme.name()).unwrap_or_default();
    let outcome = rebind(system, address, back, override_text, || ());
    match (outcome, system.bus().find(address)) {
        (Ok(()), _) => match back {
            Some(driver) => format!("{address} is bound to {driver} again"),
            None => format!("{address} is bound to no driver, as before"),
        },
        (Err(_), Ok(None)) => format!("{address} is no longer there"),
        (Err(e), found) => {
            let driver = found.ok().flatten().and_then(|function| function.driver);
            let driver = driver.unwrap_or_else(|| "no driver".to_owned());
            format!(
                "{address} is bound to {driver} now, as it could not be given back ({e}); run `unvme setup reset {address}`"
            )
        }
    }
}

/// Asks again and again until there is an answer or the time is over.
fn wait<T>(limit: Duration, mut ask: impl FnMut() -> Result<Option<T>>) -> Result<Option<T>> {
    let started = Instant::now();
    loop {
        if let Some(answer) = ask()? {
            return Ok(Some(answer));
        }
        if started.elapsed() >= limit {
            return Ok(None);
        }
        thread::sleep(PAUSE);
    }
}

/// Writes to a file of the kernel's, in one call; never makes one. Truncating is for copies of `/sys`, whose
/// files are files.
fn write(system: &System, absolute: &str, text: &str) -> Result<()> {
    let path = system.path(absolute);
    fs::OpenOptions::new()
        .write(true)
        .truncate(true)
        .open(&path)
        .and_then(|mut file| file.write_all(format!("{text}\n").as_bytes()))
        .map_err(|e| Error::file("write", &path, e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fewer_huge_pages_than_asked_for_are_an_error_or_a_remark() {
        let judged = |count, got| judge(count, got, "").map_err(|e| e.to_string());
        for (count, got) in [
            (HugePageCount::AtLeast(8), 8),
            (HugePageCount::AtLeast(8), 9),
            (HugePageCount::UpTo(8), 8),
            (HugePageCount::Exactly(0), 0),
        ] {
            assert_eq!(judged(count, got), Ok(None), "{count:?} {got}");
        }
        let error = judged(HugePageCount::AtLeast(1000), 12).expect_err("fewer");
        assert!(error.starts_with("of 1000 huge pages of 2 MiB the kernel has only 12 to give; "), "{error}");
        assert!(error.contains("/proc/sys/vm/compact_memory"), "{error}");
        let remark = judged(HugePageCount::UpTo(1000), 12).expect("enough").expect("remark");
        assert!(remark.starts_with("of 1000 huge pages"), "{remark}");
        assert!(judged(HugePageCount::UpTo(1000), 0).is_err());
        let remark = judged(HugePageCount::Exactly(0), 3).expect("in use").expect("remark");
        assert_eq!(remark, "3 huge pages stay: they are in use, and go when their users end");
    }
}
