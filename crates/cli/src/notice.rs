//! What is logged, and what whoever runs a command is told whatever is logged: that it waits, and for what.

use std::fmt::{self, Write as _};
use std::io::{self, IsTerminal, Write as _};

use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::filter::{LevelFilter, Targets, filter_fn};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt as log, registry};
use unvme::NOTICES;

/// Starts logging at `level` on stderr, with notices beside it: a line each.
pub(crate) fn start(level: LevelFilter) {
    // Colours are for a person at a terminal who has not switched them off: https://no-color.org.
    let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let log = log::layer()
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal() && !plain)
        .with_filter(Targets::new().with_default(level).with_target(NOTICES, LevelFilter::OFF));
    let notices = Notices.with_filter(filter_fn(|metadata| metadata.target() == NOTICES));
    registry().with(log).with((level != LevelFilter::OFF).then_some(notices)).init();
}

/// Writes the message of an event as a line.
struct Notices;

impl<S: Subscriber> Layer<S> for Notices {
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        let mut message = Message(String::new());
        event.record(&mut message);
        // With stderr gone there is nobody left to tell.
        let _ = writeln!(io::stderr().lock(), "unvme: note: {}", message.0);
    }
}

struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            // A string takes whatever is written to it.
            let _ = write!(self.0, "{value:?}");
        }
    }
}
