//! Interrupts: which there are, where they may run, and where they ran.

use serde::Serialize;
use unvme::Result;
use unvme_setup::System;

use crate::cpus::Cpus;
use crate::topology;

/// A device interrupt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Interrupt {
    /// Its number, that of `/proc/irq`.
    pub number: u32,
    /// Its handlers, such as `nvme0q1` or `eth0-rx-0`.
    pub name: String,
    /// CPUs it may be sent to; `None` where the kernel does not say.
    pub affinity: Option<Cpus>,
    /// CPUs it is sent to; `None` where the kernel does not say.
    pub effective: Option<Cpus>,
    /// How often it was handled since the machine started, on all CPUs; `None` where a count is no number.
    pub count: Option<u64>,
}

impl Interrupt {
    /// True for the I/O queues of the kernel's nvme driver: the kernel spreads their interrupts over the CPUs
    /// itself (`PCI_IRQ_AFFINITY`) and refuses to move them.
    pub fn is_managed(&self) -> bool {
        let queue = self.name.strip_prefix("nvme").and_then(|rest| rest.split_once('q'));
        queue.is_some_and(|(controller, queue)| {
            let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
            is_number(controller) && is_number(queue) && queue != "0"
        })
    }

    /// The CPUs it runs on, as far as the kernel says.
    pub fn cpus(&self) -> Option<&Cpus> {
        self.effective.as_ref().filter(|cpus| !cpus.is_empty()).or(self.affinity.as_ref())
    }
}

/// The numbered interrupts of `/proc/interrupts`; none where there is no such file.
///
/// # Errors
/// [`unvme::Error::Io`], [`unvme::Error::Argument`] for a file that cannot be read or parsed.
pub fn interrupts(system: &System) -> Result<Vec<Interrupt>> {
    let text = system.file("/proc/interrupts")?.unwrap_or_default();
    let mut lines = text.lines();
    let columns = lines.next().unwrap_or_default().split_ascii_whitespace().count();
    let mut found = Vec::new();
    for line in lines {
        let Some((number, rest)) = line.split_once(':') else { continue };
        // NMI, LOC and their like are of the CPUs themselves.
        let Ok(number) = number.trim().parse::<u32>() else { continue };
        let mut words = rest.split_ascii_whitespace();
        let mut counts = words.by_ref().take(columns).map(|word| word.parse::<u64>().ok());
        let count = counts.try_fold(0u64, |sum, count| sum.checked_add(count?));
        let words: Vec<&str> = words.collect();
        // Controller, pin and trigger come first; what is left are the handlers.
        let name = words.last().map_or_else(String::new, |name| (*name).to_owned());
        let dir = format!("/proc/irq/{number}");
        found.push(Interrupt {
            number,
            name,
            affinity: topology::list(system, &format!("{dir}/smp_affinity_list"))?,
            effective: topology::list(system, &format!("{dir}/effective_affinity_list"))?,
            count,
        });
    }
    Ok(found)
}

/// The numbers of the message-signalled interrupts of a PCI function. Errors: [`unvme::Error::Io`] for a
/// directory that cannot be listed.
pub(crate) fn of_function(system: &System, address: &str) -> Result<Vec<u32>> {
    let names = system.entries(&format!("/sys/bus/pci/devices/{address}/msi_irqs"))?;
    Ok(names.iter().filter_map(|name| name.parse().ok()).collect())
}
