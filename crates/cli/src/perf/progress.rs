//! A bar on standard error; nothing when that is no terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// Pause between two looks at a measurement that is under way: its threads have the cores.
pub(crate) const PAUSE: Duration = Duration::from_millis(100);

/// How far a step has come.
#[derive(Debug)]
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// A bar of `length` steps, with `title` before it.
    pub(crate) fn new(title: &str, length: u64) -> Self {
        let bar = ProgressBar::new(length);
        if let Ok(style) = ProgressStyle::with_template("{prefix} [{bar:30}] {percent:>3}%  {msg}") {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_prefix(title.to_owned());
        Self(bar)
    }

    /// True when somebody sees it.
    pub(crate) fn is_shown(&self) -> bool {
        !self.0.is_hidden()
    }

    /// How many steps there are turns out later.
    pub(crate) fn of(&self, length: u64) {
        self.0.set_length(length);
    }

    pub(crate) fn set(&self, position: u64) {
        self.0.set_position(position);
    }

    /// Does something that prints lines, with the bar out of their way.
    pub(crate) fn aside<T>(&self, print: impl FnOnce() -> T) -> T {
        self.0.suspend(print)
    }

    pub(crate) fn say(&self, message: String) {
        self.0.set_message(message);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
