//! Deciding what to do with which drive, before anything is touched.

use std::collections::BTreeSet;

use rustix::fs::{Access, AtFlags, CWD, accessat};
use unvme_bus::pci::CLASS_NVM_EXPRESS;

use super::drive::bus_error;
use super::evidence::Evidence;
use super::kernel_module::{self, Module};
use super::step::{Driver, HugePageCount, PROBE_FILE, Step};
use super::{Drive, How, Owner, System, Use, drives, run};
use unvme::{Error, PciAddress, Result};

/// Huge pages of 2 MiB that drives without an IOMMU are given when nobody says how many: 2 GiB, as the
/// guide's script.
pub const UIO_HUGE_PAGES: u64 = 1024;

/// What `unvme setup config` is asked for.
#[derive(Clone, Debug, Default)]
pub struct ConfigOptions {
    /// The drives; none means all that are not in use.
    pub addresses: Vec<PciAddress>,
    /// The driver; `None` chooses vfio-pci where an IOMMU guards the drive, else uio_pci_generic.
    pub driver: Option<Driver>,
    /// Huge pages of 2 MiB to have; `None` reserves some only where uio_pci_generic needs them.
    pub huge_pages: Option<u64>,
    /// NUMA node to have them on.
    pub node: Option<u32>,
    /// Who is given the drives.
    pub owner: Option<Owner>,
    /// User whose limit of locked memory is lifted, from his next login on.
    pub limits: Option<String>,
    /// Only say what would be done. Then what this user may not look at does not matter.
    pub dry_run: bool,
}

/// What `unvme setup reset` is asked for.
#[derive(Clone, Debug, Default)]
pub struct ResetOptions {
    /// The drives; none means all that are bound to vfio-pci or uio_pci_generic.
    pub addresses: Vec<PciAddress>,
    /// Huge pages of 2 MiB to leave; `None` leaves them as they are.
    pub huge_pages: Option<u64>,
    /// NUMA node that is about.
    pub node: Option<u32>,
    /// Only say what would be done.
    pub dry_run: bool,
}

/// What is to become of a drive.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// It gets another driver.
    Bind {
        /// Which.
        to: Driver,
        /// Why this one; empty when it was asked for.
        why: String,
    },
    /// It has the driver that it should have.
    Already,
    /// It is left alone, as it is in use or cannot be taken.
    Left {
        /// Why.
        why: String,
    },
}

/// A drive, and what is to become of it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Decision {
    /// The drive, as it was found.
    pub drive: Drive,
    /// What is to become of it.
    pub outcome: Outcome,
    /// What could not be looked at; only ever in a dry run.
    pub unseen: Vec<String>,
}

/// What is to be done, complete. Nothing has been touched.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Plan {
    /// By drive.
    pub decisions: Vec<Decision>,
    /// Step by step.
    pub steps: Vec<Step>,
}

impl Plan {
    /// Does all of it, or none: when a step fails, what was done is undone. Returns remarks for the user.
    /// Errors: [`Error::Setup`] says what failed and in what state the drives are now.
    pub fn execute(&self, system: &System) -> Result<Vec<String>> {
        run::run(system, &self.steps)
    }
}

/// Why a drive cannot be taken.
struct Refusal {
    error: Error,
    why: String,
}

impl Refusal {
    fn setup(address: PciAddress, problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        let why = problem.into();
        Self { error: Error::Setup { problem: format!("{address}: {why}"), remedy: remedy.into() }, why }
    }
}

/// Plans to hand drives to user space (or, with [`Driver::Nvme`], to the kernel, and to a user). Errors:
/// [`Error::NotFound`], [`Error::Argument`], [`Error::DriveInUse`] or [`Error::Setup`] for a drive that was
/// named and cannot be taken, or when there is none to take; drives that were not named are left alone
/// instead.
pub fn plan_config(system: &System, options: &ConfigOptions) -> Result<Plan> {
    may_write(system, options.dry_run)?;
    let chosen = choose(system, &options.addresses)?;
    let evidence = Evidence::gather(system);
    let named = !options.addresses.is_empty();
    let mut decisions = Vec::new();
    for drive in chosen {
        decisions.push(match decide(system, &evidence, drive.clone(), options) {
            Ok(decision) => decision,
            Err(refusal) if named => return Err(refusal.error),
            Err(refusal) => {
                Decision { drive, outcome: Outcome::Left { why: refusal.why }, unseen: Vec::new() }
            }
        });
    }
    leave_groups_in_use(&mut decisions, named)?;
    if decisions.is_empty() {
        return Err(nothing("there is no NVMe function on the PCI bus"));
    }
    if let [Decision { outcome: Outcome::Left { why }, .. }] = decisions.as_slice() {
        return Err(nothing(&format!("the only NVMe function was left alone: {why}")));
    }
    if decisions.iter().all(|decision| matches!(decision.outcome, Outcome::Left { .. })) {
        return Err(nothing("all NVMe functions were left alone; name one to learn why"));
    }
    let steps = config_steps(system, options, &decisions)?;
    Ok(Plan { decisions, steps })
}

/// Plans to give drives back to the kernel's driver. Errors: as [`plan_config`]: above all for a drive that a
/// process has open, as taking it away would wait for that process.
pub fn plan_reset(system: &System, options: &ResetOptions) -> Result<Plan> {
    may_write(system, options.dry_run)?;
    let named = !options.addresses.is_empty();
    let mut chosen = choose(system, &options.addresses)?;
    if !named {
        chosen.retain(|drive| is_user_space(drive.driver()) || is_left_over(system, drive));
    }
    let evidence = Evidence::gather(system);
    let mut decisions = Vec::new();
    for drive in chosen {
        let outcome = if drive.driver() == Some(Driver::Nvme.name()) {
            Outcome::Already
        } else {
            known_driver(&drive)
                .and_then(|()| nobody_has(&evidence, &drive))
                .map_err(|refusal| refusal.error)?;
            Outcome::Bind { to: Driver::Nvme, why: String::new() }
        };
        decisions.push(Decision { drive, outcome, unseen: Vec::new() });
    }
    let mut steps = Vec::new();
    bind_steps(system, &decisions, &mut steps)?;
    if let Some(pages) = options.huge_pages {
        steps.push(Step::HugePages { node: options.node, count: HugePageCount::Exactly(pages) });
    }
    Ok(Plan { decisions, steps })
}

/// The drives that were named, or all.
fn choose(system: &System, addresses: &[PciAddress]) -> Result<Vec<Drive>> {
    let all = drives(system)?;
    if addresses.is_empty() {
        return Ok(all);
    }
    let mut chosen: Vec<Drive> = Vec::new();
    for &address in addresses {
        if chosen.iter().any(|drive| drive.function.address == address) {
            continue;
        }
        match all.iter().find(|drive| drive.function.address == address) {
            Some(drive) => chosen.push(drive.clone()),
            None => return Err(not_found(system, address, &all)),
        }
    }
    Ok(chosen)
}

fn not_found(system: &System, address: PciAddress, all: &[Drive]) -> Error {
    match system.bus().find(address) {
        Ok(Some(function)) if function.class != CLASS_NVM_EXPRESS => Error::Argument(format!(
            "{address} is no NVMe controller: its class is {:#08x}, not {CLASS_NVM_EXPRESS:#08x}",
            function.class
        )),
        Ok(_) => {
            let names: Vec<String> = all.iter().map(|drive| drive.function.address.to_string()).collect();
            let available = match names.as_slice() {
                [] => "there is no NVMe function on the PCI bus".to_owned(),
                names => format!("NVMe functions on the PCI bus are {}", names.join(", ")),
            };
            Error::NotFound { name: address.to_string(), available }
        }
        Err(e) => bus_error(e),
    }
}

fn nothing(problem: &str) -> Error {
    Error::Setup { problem: problem.to_owned(), remedy: "see `unvme setup status`".to_owned() }
}

/// Says early that changing drivers takes root.
fn may_write(system: &System, dry_run: bool) -> Result<()> {
    if dry_run || !system.has("/sys/bus/pci") {
        return Ok(());
    }
    let path = system.path(PROBE_FILE);
    accessat(CWD, &path, Access::WRITE_OK, AtFlags::EACCESS).map_err(|e| Error::Setup {
        problem: format!("this user may not change drivers: {}: {e}", path.display()),
        remedy: "run the command with sudo, or with --dry-run to see its steps".to_owned(),
    })
}

fn is_user_space(driver: Option<&str>) -> bool {
    driver.is_some_and(|driver| [Driver::VfioPci, Driver::UioPciGeneric].iter().any(|d| d.name() == driver))
}

/// True for a function without a driver that only a driver for user space may have: what a failed attempt
/// leaves behind.
fn is_left_over(system: &System, drive: &Drive) -> bool {
    let text = system.text(&super::step::override_file(drive.function.address));
    drive.driver().is_none() && is_user_space(text.as_deref())
}

/// What is to become of a drive, as far as it alone decides that.
fn decide(
    system: &System,
    evidence: &Evidence,
    drive: Drive,
    options: &ConfigOptions,
) -> std::result::Result<Decision, Refusal> {
    known_driver(&drive)?;
    let (to, why) = match options.driver {
        Some(driver) => (driver, String::new()),
        // What was set up stays as it is.
        None if drive.driver() == Some(Driver::VfioPci.name()) => (Driver::VfioPci, String::new()),
        None if drive.driver() == Some(Driver::UioPciGeneric.name()) => {
            (Driver::UioPciGeneric, String::new())
        }
        None => automatic(system, &drive),
    };
    possible(system, &drive, to)?;
    if to == Driver::UioPciGeneric && options.owner.is_some() {
        return Err(Refusal::setup(
            drive.function.address,
            "uio_pci_generic cannot be given to a user: without an IOMMU a drive reaches all memory, which takes root",
            "use vfio-pci, or leave out the user",
        ));
    }
    if drive.driver() == Some(to.name()) && to != Driver::Nvme {
        return Ok(Decision { drive, outcome: Outcome::Already, unseen: Vec::new() });
    }
    let mut unseen = Vec::new();
    if is_user_space(drive.driver()) {
        nobody_has(evidence, &drive)?;
    } else {
        unseen = unused(evidence, &drive, options.dry_run)?;
    }
    let outcome = match drive.driver() == Some(to.name()) {
        true => Outcome::Already,
        false => Outcome::Bind { to, why },
    };
    Ok(Decision { drive, outcome, unseen })
}

/// The driver for user space that suits a drive, and why.
fn automatic(system: &System, drive: &Drive) -> (Driver, String) {
    if drive.function.iommu_group.is_none() {
        return (Driver::UioPciGeneric, "there is no IOMMU group for it".to_owned());
    }
    let has = |driver: Driver| kernel_module::look_up(system, driver.name()) != Module::Missing;
    if !has(Driver::VfioPci) && has(Driver::UioPciGeneric) && !drive.function.is_translated() {
        return (
            Driver::UioPciGeneric,
            "the kernel has no vfio-pci, and the IOMMU passes through".to_owned(),
        );
    }
    (Driver::VfioPci, "an IOMMU guards it".to_owned())
}

/// A driver that setup knows how to take a function from.
fn known_driver(drive: &Drive) -> std::result::Result<(), Refusal> {
    match drive.driver() {
        Some(driver) if driver != Driver::Nvme.name() && !is_user_space(Some(driver)) => Err(Refusal::setup(
            drive.function.address,
            format!("its driver is {driver}, which setup leaves alone"),
            format!(
                "release it there first (echo {0} > /sys/bus/pci/devices/{0}/driver/unbind)",
                drive.function.address
            ),
        )),
        _ => Ok(()),
    }
}

/// What the machine must have for a driver.
fn possible(system: &System, drive: &Drive, to: Driver) -> std::result::Result<(), Refusal> {
    let address = drive.function.address;
    let refuse = |problem: &str, remedy: &str| Err(Refusal::setup(address, problem, remedy));
    if kernel_module::look_up(system, to.name()) == Module::Missing {
        let problem = format!("the kernel {} has no driver {to}", kernel_module::release(system));
        return Err(Refusal::setup(address, problem, kernel_module::remedy(system)));
    }
    match to {
        Driver::VfioPci if drive.function.iommu_group.is_none() => refuse(
            "vfio-pci needs an IOMMU, and this drive is in no IOMMU group",
            "switch it on in the firmware (VT-d, AMD-Vi) and on the kernel's command line (intel_iommu=on), or use \
             --driver uio_pci_generic as root",
        ),
        Driver::UioPciGeneric if drive.function.is_translated() => refuse(
            "uio_pci_generic does not work behind an IOMMU that translates",
            "use --driver vfio-pci, or boot with iommu=pt",
        ),
        Driver::UioPciGeneric if is_locked_down(system) => refuse(
            "the kernel is locked down (secure boot), which forbids user space to reach registers by uio_pci_generic",
            "use --driver vfio-pci",
        ),
        _ => Ok(()),
    }
}

/// `none [integrity] confidentiality`: the one in brackets applies (`kernel_lockdown(7)`).
fn is_locked_down(system: &System) -> bool {
    let text = system.text("/sys/kernel/security/lockdown").unwrap_or_default();
    text.contains("[integrity]") || text.contains("[confidentiality]")
}

/// Refuses a drive that is in use. What could not be looked at counts as use, except in a dry run, which
/// returns it.
fn unused(evidence: &Evidence, drive: &Drive, dry_run: bool) -> std::result::Result<Vec<String>, Refusal> {
    let address = drive.function.address;
    let examined = evidence.examine(drive);
    if let Some(first) = examined.uses.first() {
        let by = examined.uses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let remedy = first.remedy();
        let error = Error::DriveInUse { name: address.to_string(), by: by.clone(), remedy };
        return Err(Refusal { error, why: by });
    }
    match examined.unseen.first() {
        Some(first) if !dry_run => Err(Refusal::setup(
            address,
            format!("whether it is in use is not known: {first}"),
            format!(
                "if nobody uses it, take it from the kernel first: echo {address} > /sys/bus/pci/drivers/nvme/unbind"
            ),
        )),
        _ => Ok(examined.unseen),
    }
}

/// Refuses a drive for user space that a process has open: the kernel would wait for that process.
fn nobody_has(evidence: &Evidence, drive: &Drive) -> std::result::Result<(), Refusal> {
    let mut uses = evidence.uses(drive);
    if uses.is_empty() && evidence.has_open_group(drive) {
        let group = drive.function.iommu_group.unwrap_or_default();
        uses.push(Use { device: format!("/dev/vfio/{group}"), how: How::Exclusive });
    }
    match uses.first() {
        None => Ok(()),
        Some(used) => {
            let (name, by) = (drive.function.address.to_string(), used.to_string());
            Err(Refusal { error: Error::DriveInUse { name, by: by.clone(), remedy: used.remedy() }, why: by })
        }
    }
}

/// An IOMMU group is handed out as a whole: a drive whose group has a function that the kernel keeps is left
/// alone.
fn leave_groups_in_use(decisions: &mut [Decision], named: bool) -> Result<()> {
    loop {
        let taken: BTreeSet<PciAddress> = decisions
            .iter()
            .filter(|decision| matches!(decision.outcome, Outcome::Bind { to: Driver::VfioPci, .. }))
            .map(|decision| decision.drive.function.address)
            .collect();
        let mut changed = false;
        for decision in decisions.iter_mut().filter(|d| taken.contains(&d.drive.function.address)) {
            let function = &decision.drive.function;
            let others = function.group_others().map_err(bus_error)?;
            let kept: Vec<String> = others
                .iter()
                .filter(|other| other.holds_group() && !taken.contains(&other.address))
                .map(|other| format!("{} ({})", other.address, other.driver.as_deref().unwrap_or("?")))
                .collect();
            if kept.is_empty() {
                continue;
            }
            let group = function.iommu_group.unwrap_or_default();
            let why = format!("the kernel drives others of its IOMMU group {group}: {}", kept.join(", "));
            if named {
                return Err(Error::Setup {
                    problem: format!("{}: {why}", function.address),
                    remedy: "a group is handed to user space as a whole: release the others first, or put the drive \
                             in another PCIe slot"
                        .to_owned(),
                });
            }
            decision.outcome = Outcome::Left { why };
            changed = true;
        }
        if !changed {
            return Ok(());
        }
    }
}

fn config_steps(system: &System, options: &ConfigOptions, decisions: &[Decision]) -> Result<Vec<Step>> {
    let mut steps = Vec::new();
    let is_uio = |decision: &Decision| match &decision.outcome {
        Outcome::Bind { to, .. } => *to == Driver::UioPciGeneric,
        Outcome::Already => decision.drive.driver() == Some(Driver::UioPciGeneric.name()),
        Outcome::Left { .. } => false,
    };
    let count = match options.huge_pages {
        Some(pages) => Some(HugePageCount::AtLeast(pages)),
        None => decisions.iter().any(is_uio).then_some(HugePageCount::UpTo(UIO_HUGE_PAGES)),
    };
    // Before any drive is touched: they are what most often cannot be had.
    if let Some(count) = count {
        steps.push(Step::HugePages { node: options.node, count });
    }
    bind_steps(system, decisions, &mut steps)?;
    if let Some(owner) = &options.owner {
        owner.id(system)?;
        if system.has("/run/udev/control") {
            steps.push(Step::Settle);
        }
        for decision in decisions {
            let to = match &decision.outcome {
                Outcome::Bind { to, .. } => to.name(),
                Outcome::Already => decision.drive.driver().unwrap_or_default(),
                Outcome::Left { .. } => continue,
            };
            let group = decision.drive.function.iommu_group.filter(|_| to == Driver::VfioPci.name());
            let nodes = match group {
                Some(group) => vec![format!("/dev/vfio/{group}")],
                None => decision.drive.character_nodes(),
            };
            let address = decision.drive.function.address;
            steps.push(Step::Give { address, nodes, owner: owner.clone() });
        }
    }
    if let Some(user) = &options.limits {
        Owner::User(user.clone()).id(system)?;
        steps.push(Step::Limits { user: user.clone() });
    }
    Ok(steps)
}

/// Modules and bindings.
fn bind_steps(system: &System, decisions: &[Decision], steps: &mut Vec<Step>) -> Result<()> {
    let mut modules = BTreeSet::new();
    let mut binds = Vec::new();
    for decision in decisions {
        let Outcome::Bind { to, .. } = decision.outcome else { continue };
        match kernel_module::look_up(system, to.name()) {
            Module::Loaded => {}
            Module::Loadable => {
                modules.insert(to);
            }
            Module::Missing => {
                return Err(Error::Setup {
                    problem: format!("the kernel {} has no driver {to}", kernel_module::release(system)),
                    remedy: kernel_module::remedy(system),
                });
            }
        }
        let drive = &decision.drive;
        let disks = drive.disks();
        let from = drive.driver().map(str::to_owned);
        binds.push(Step::Bind { address: drive.function.address, from, to, disks });
    }
    steps.extend(modules.into_iter().map(Step::LoadModule));
    steps.extend(binds);
    Ok(())
}
