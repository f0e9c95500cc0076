//! The commands.

pub(crate) mod attach;
pub(crate) mod compare;
pub(crate) mod create_ns;
pub(crate) mod device;
pub(crate) mod directive;
pub(crate) mod discover;
pub(crate) mod dsm;
pub(crate) mod feature;
pub(crate) mod firmware;
pub(crate) mod flush;
pub(crate) mod format;
pub(crate) mod generate;
pub(crate) mod get_log;
pub(crate) mod identify;
pub(crate) mod key;
pub(crate) mod list;
pub(crate) mod log_pages;
pub(crate) mod logs;
pub(crate) mod passthru;
pub(crate) mod read;
pub(crate) mod registers;
pub(crate) mod reset;
pub(crate) mod serve;
pub(crate) mod subsystems;
pub(crate) mod telemetry;
pub(crate) mod write;
pub(crate) mod write_zeroes;

mod transfer;

/// Commands to choose from, each with arguments of its own, which are what does it: `run`.
macro_rules! commands {
    ($(#[$about:meta])* pub(crate) enum $Command:ident {
        $($(#[$note:meta])* $name:ident($Arguments:ty),)*
    }) => {
        $(#[$about])*
        pub(crate) enum $Command {
            $($(#[$note])* $name($Arguments),)*
        }

        impl $Command {
            /// Does what was asked for.
            pub(crate) fn run(self) -> anyhow::Result<()> {
                match self {
                    $(Self::$name(command) => command.run(),)*
                }
            }
        }
    };
}
pub(crate) use commands;
