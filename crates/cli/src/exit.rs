//! Exit codes, and how an error is told.

mod unplugged;

use std::io;
use std::process::ExitCode;

use unvme::Error;
use unvme_guide::session::OpError;

/// Everything went well.
pub(crate) const OK: u8 = 0;
/// The device answered a command with an error status.
pub(crate) const DEVICE: u8 = 1;
/// What was typed makes no sense; also clap's code.
pub(crate) const USAGE: u8 = 2;
/// There is no such device, or it is in use.
pub(crate) const NOT_AVAILABLE: u8 = 3;
/// The operating system refused, the machine is not set up for what was asked, or the connection to the
/// device failed.
pub(crate) const SYSTEM: u8 = 4;
/// Something that destroys data was not confirmed.
pub(crate) const NOT_CONFIRMED: u8 = 5;
/// The virtual device is unplugged, or was while the command had it open.
pub(crate) const UNPLUGGED: u8 = 6;
/// A signal ended it early: that of a shell for a process that a SIGINT has ended.
pub(crate) const INTERRUPTED: u8 = 130;

/// The codes, for the end of the help.
pub(crate) const HELP: &str = "\
Exit codes:
  0  success
  1  the device answered with an error status, or with wrong data
  2  wrong usage: an option, a name or a value that makes no sense
  3  no such device, or it is in use
  4  the operating system refused, the machine is not set up for it, or the connection failed
  5  not confirmed: the command destroys data and was given neither an answer nor --force
  6  the virtual device is unplugged, or was unplugged while the command had it open
  130  interrupted, as by Ctrl-C; `perf` prints what it has measured until then";

/// What was typed makes no sense, beyond what clap can see.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Usage(pub(crate) String);

/// Something that destroys data was not confirmed.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct NotConfirmed(pub(crate) String);

/// Commands failed, or data was wrong, and the result has been shown all the same.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Failed(pub(crate) String);

/// A signal ended it early, and what there is has been shown.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Interrupted(pub(crate) String);

pub(crate) fn usage(message: impl Into<String>) -> anyhow::Error {
    Usage(message.into()).into()
}

/// The exit code for an error; what it is about decides, however much context was added.
fn code_of(error: &anyhow::Error) -> u8 {
    for cause in error.chain() {
        if cause.is::<Usage>() {
            return USAGE;
        }
        if cause.is::<NotConfirmed>() {
            return NOT_CONFIRMED;
        }
        if cause.is::<Interrupted>() {
            return INTERRUPTED;
        }
        if cause.is::<Failed>() {
            return DEVICE;
        }
        if let Some(error) = cause.downcast_ref::<OpError>() {
            return match error {
                OpError::Status(_) => DEVICE,
                OpError::Argument(_) | OpError::Unsupported(_) => USAGE,
                _ => SYSTEM,
            };
        }
        if let Some(error) = cause.downcast_ref::<unvme_fs::Error>() {
            return match error {
                unvme_fs::Error::Device(_) | unvme_fs::Error::Damaged { .. } => DEVICE,
                unvme_fs::Error::Format(_) => USAGE,
                unvme_fs::Error::Busy(_) => NOT_AVAILABLE,
                _ => SYSTEM,
            };
        }
        if let Some(error) = cause.downcast_ref::<Error>() {
            return match error {
                Error::Device { .. } | Error::Pair { .. } | Error::Ended { .. } => DEVICE,
                Error::Unplugged { .. } => UNPLUGGED,
                Error::NotFound { .. }
                | Error::InUse { .. }
                | Error::DriveInUse { .. }
                | Error::Claimed { .. } => NOT_AVAILABLE,
                Error::Name { .. }
                | Error::Unsupported { .. }
                | Error::Argument(_)
                | Error::Exists { .. } => USAGE,
                _ => SYSTEM,
            };
        }
    }
    SYSTEM
}

/// True when the reader of our output has gone: not an error worth a word.
pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
            || cause.downcast_ref::<serde_json::Error>().and_then(|e| e.io_error_kind())
                == Some(io::ErrorKind::BrokenPipe)
    })
}

/// One line: what went wrong, then why, from the outside in.
fn line_of(error: &anyhow::Error) -> String {
    let mut parts = Vec::new();
    for cause in error.chain() {
        parts.push(cause.to_string());
        if cause.is::<Error>() {
            // Says itself what its sources are.
            break;
        }
    }
    parts.join(": ").replace('\n', " ")
}

/// What an error is told as, and its code. When a command has failed and its device turns out to be
/// unplugged, that is why.
pub(crate) fn told(error: &anyhow::Error) -> (String, u8) {
    let (line, code) = (line_of(error), code_of(error));
    let may_be_gone = matches!(code, DEVICE | SYSTEM) || error.chain().any(is_in_use);
    match unplugged::reason(&line).filter(|_| may_be_gone) {
        // A device that was looked for elsewhere has said so already.
        Some(reason) if line.contains(&reason.to_string()) => (line, UNPLUGGED),
        Some(reason) => (format!("{line}; {reason}"), UNPLUGGED),
        None => (line, code),
    }
}

fn is_in_use(cause: &(dyn std::error::Error + 'static)) -> bool {
    matches!(cause.downcast_ref::<Error>(), Some(Error::InUse { .. }))
}

/// Ends the program: a line on stderr for an error, and its code.
pub(crate) fn report(result: anyhow::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::from(OK),
        Err(error) if is_broken_pipe(&error) => ExitCode::from(OK),
        Err(error) => {
            let (line, code) = told(&error);
            let mut stderr = io::stderr().lock();
            // With stderr gone there is nobody left to tell.
            let _ = io::Write::write_fmt(&mut stderr, format_args!("unvme: {line}\n"));
            ExitCode::from(code)
        }
    }
}
