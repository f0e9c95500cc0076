//! The list of behaviours: which transport runs each, and why another one does not.
//!
//! A behaviour is a function of the module that its group is called after; it takes the transport, a
//! `fn(SsdConfig) -> Rig`. `in_process` and `vfio_user` run all of them. What a file or a connection cannot
//! do says so, for its group or for itself; whatever says nothing is a test. A drive behind VFIO and a
//! controller behind the kernel's passthrough are in a guest, where scripts check what a group is about.

use std::fmt;

/// Why a transport does not run a behaviour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// It is no PCI function.
    NoFunction,
    /// Nothing stands between driver and device that a test could tell to fail.
    NoSaboteur,
    /// The end of the device is the end of its connection.
    EndsConnection,
    /// A file is no controller.
    OnlyBlocks,
    /// The kernel's block layer knows no such commands.
    BlockLayer,
    /// The kernel does it.
    KernelsOwn,
    /// The guest's controllers do not have it.
    NotInQemu,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoFunction => "it has no registers, rings, interrupt vectors or PRPs",
            Self::NoSaboteur => "the saboteur stands in front of a PCI function",
            Self::EndsConnection => "it ends the connection, which `network` and `tcp_hostile` are about",
            Self::OnlyBlocks => "a file has blocks, and no controller, pairs, placement or rules",
            Self::BlockLayer => "the kernel's block layer has no such command, data pointer or status",
            Self::KernelsOwn => "the kernel brings its controllers up itself",
            Self::NotInQemu => "QEMU's controllers there have no pairs, no placement and no rules",
        })
    }
}

/// Where a transport that needs a guest is looked at.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Guest {
    /// A script of `tests/guest`, and its check.
    Check(&'static str, &'static str),
    No(Why),
}

/// A group of behaviours in the guest.
pub(crate) struct Group {
    pub(crate) name: &'static str,
    pub(crate) vfio: Guest,
    pub(crate) passthrough: Guest,
}

/// A behaviour, and why it is left out: on a file beside the kernel's driver, and over NVMe/TCP.
pub(crate) struct Case {
    pub(crate) group: &'static str,
    pub(crate) name: &'static str,
    pub(crate) file: Option<Why>,
    pub(crate) network: Option<Why>,
}

/// A test, unless the group or the behaviour has a reason.
macro_rules! case {
    ($transport:ident $group:ident $name:ident: Runs) => {
        #[test]
        fn $name() {
            crate::$group::$name(crate::rig::Rig::$transport)
        }
    };
    ($transport:ident $group:ident $name:ident: $($why:ident)+) => {};
}

macro_rules! why {
    (Runs) => {
        None
    };
    (Runs $why:ident) => {
        Some(crate::list::Why::$why)
    };
    ($why:ident) => {
        Some(crate::list::Why::$why)
    };
}

macro_rules! conformance {
    ($($group:ident [file: $all_file:ident, network: $all_network:ident] {
        vfio: $vfio:expr;
        passthrough: $passthrough:expr;
        $($name:ident $([file: $file:ident])? $([network: $network:ident])?,)*
    })*) => {
        mod in_process {
            $($(crate::list::case! { in_process $group $name: Runs })*)*
        }
        mod vfio_user {
            $($(crate::list::case! { vfio_user $group $name: Runs })*)*
        }
        mod kernel_file {
            $($(crate::list::case! { kernel_file $group $name: $all_file $($file)? })*)*
        }
        mod tcp {
            $($(crate::list::case! { tcp $group $name: $all_network $($network)? })*)*
        }

        pub(crate) const GROUPS: &[crate::list::Group] = &[$(crate::list::Group {
            name: stringify!($group),
            vfio: $vfio,
            passthrough: $passthrough,
        }),*];
        pub(crate) const CASES: &[crate::list::Case] = &[$($(crate::list::Case {
            group: stringify!($group),
            name: stringify!($name),
            file: crate::list::why!($all_file $($file)?),
            network: crate::list::why!($all_network $($network)?),
        }),*),*];
    };
}

pub(crate) use {case, conformance, why};

/// What each transport leaves out, with `--nocapture`; what a guest has of it is in the scripts that the list
/// names.
#[test]
#[expect(clippy::print_stdout, reason = "the list is for whoever asks for it")]
fn every_transport_runs_a_behaviour_or_says_why_not() {
    for (transport, why) in [("kernel_file", file as fn(&Case) -> Option<Why>), ("tcp", network)] {
        let left_out: Vec<&Case> = crate::CASES.iter().filter(|case| why(case).is_some()).collect();
        println!("{transport}: {} of {} run", crate::CASES.len() - left_out.len(), crate::CASES.len());
        for case in left_out {
            println!("  {}::{}: {}", case.group, case.name, why(case).expect("it is left out"));
        }
    }
    let scripts = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/guest");
    for group in crate::GROUPS {
        for (transport, guest) in [("vfio", group.vfio), ("passthrough", group.passthrough)] {
            match guest {
                Guest::No(why) => println!("{transport}: {}: {why}", group.name),
                Guest::Check(script, check) => {
                    println!("{transport}: {}: {script}, '{check}'", group.name);
                    let text = std::fs::read_to_string(format!("{scripts}/{script}")).expect(script);
                    assert!(text.contains(&format!("check '{check}'")), "{script} has no check '{check}'");
                }
            }
        }
    }
}

fn file(case: &Case) -> Option<Why> {
    case.file
}

fn network(case: &Case) -> Option<Why> {
    case.network
}
