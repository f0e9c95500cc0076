//! Help as wide as the terminal. Paragraphs are broken by clap; what is laid out, tables and examples, is
//! fitted here, so that no line of it is broken in the middle of a column.

use clap::Command;
use clap::builder::StyledStr;
use rustix::termios::tcgetwinsize;

/// Columns of a terminal that does not say how wide it is, and the most that is used.
const WIDTH_MAX: usize = 100;
/// Columns below which lines are broken as they come.
const WIDTH_MIN: usize = 40;
/// Blanks between an entry and what is said of it, at least.
const GAP: &str = "  ";
/// What a line is indented by that goes on with the one above.
const HANGING: usize = 8;

/// Columns of the terminal that help is read on: `COLUMNS`, or what the terminal says.
pub(crate) fn width() -> usize {
    let named = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok()).filter(|&width| width > 0);
    let told = || {
        let size = tcgetwinsize(rustix::stdio::stdout()).or_else(|_| tcgetwinsize(rustix::stdio::stderr()));
        size.ok().map(|size| usize::from(size.ws_col)).filter(|&width| width > 0)
    };
    named.or_else(told).unwrap_or(WIDTH_MAX).clamp(WIDTH_MIN, WIDTH_MAX)
}

/// A command whose texts, and those of all commands below it, fit `width` columns.
pub(crate) fn fitted(command: Command, width: usize) -> Command {
    let text = |text: Option<&StyledStr>| text.map(|text| fit(&text.to_string(), width));
    let long_about = text(command.get_long_about());
    let after = text(command.get_after_help());
    let after_long = text(command.get_after_long_help());
    let names: Vec<String> = command.get_subcommands().map(|below| below.get_name().to_owned()).collect();
    let mut command = command.term_width(width);
    if let Some(text) = long_about {
        command = command.long_about(text);
    }
    if let Some(text) = after {
        command = command.after_help(text);
    }
    if let Some(text) = after_long {
        command = command.after_long_help(text);
    }
    names
        .into_iter()
        .fold(command, |command, name| command.mut_subcommand(name, |below| fitted(below, width)))
}

/// A text for `width` columns: paragraphs in one line each, indented lines fitted.
fn fit(text: &str, width: usize) -> String {
    let mut lines: Vec<String> = Vec::new();
    let mut is_paragraph = false;
    // Where the entry above has its description: lines that begin there go on with it.
    let mut column = None;
    for line in text.lines() {
        let indent = line.len() - line.trim_start().len();
        match lines.last_mut() {
            Some(last) if is_paragraph && indent == 0 && !line.is_empty() && !last.ends_with(':') => {
                last.push(' ');
                last.push_str(line);
                continue;
            }
            Some(last) if indent > 0 && column == Some(indent) => {
                last.push(' ');
                last.push_str(line.trim_start());
                continue;
            }
            _ => {}
        }
        is_paragraph = indent == 0 && !line.is_empty();
        column = description(line);
        lines.push(line.to_owned());
    }
    let fitted = lines.into_iter().map(|line| match line.starts_with(' ') {
        true => fit_entry(&line, width),
        false => line,
    });
    fitted.collect::<Vec<_>>().join("\n")
}

/// The column at which an indented line says what its entry is: behind the first gap.
fn description(line: &str) -> Option<usize> {
    let indent = line.len() - line.trim_start().len();
    let gap = line.get(indent..).filter(|_| indent > 0)?.find(GAP)? + indent;
    let blanks = line[gap..].len() - line[gap..].trim_start().len();
    Some(gap + blanks)
}

/// An entry: its description beside it where there is room, below it otherwise; a command that is too long
/// goes on behind a backslash.
fn fit_entry(line: &str, width: usize) -> String {
    if line.chars().count() <= width {
        return line.to_owned();
    }
    let Some(column) = description(line) else { return continued(line, width) };
    let (entry, text) = line.split_at(column);
    if column * 2 <= width {
        let words = wrap(text, width - column);
        return entry.to_owned() + &words.join(&format!("\n{:column$}", ""));
    }
    let indent = line.len() - line.trim_start().len() + HANGING;
    let words = wrap(text, width.saturating_sub(indent).max(WIDTH_MIN / 2));
    let below: String = words.iter().map(|words| format!("\n{:indent$}{words}", "")).collect();
    continued(entry.trim_end(), width) + &below
}

/// Words of a text in lines of at most `width` columns.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let Some(last) = lines.last_mut() else { break };
        if !last.is_empty() && last.chars().count() + 1 + word.chars().count() > width {
            lines.push(word.to_owned());
            continue;
        }
        if !last.is_empty() {
            last.push(' ');
        }
        last.push_str(word);
    }
    lines
}

/// A command line in as many lines as it takes, broken between its words as a shell takes it.
fn continued(line: &str, width: usize) -> String {
    let indent = line.len() - line.trim_start().len();
    let hanging = indent + HANGING / 2;
    if line.chars().count() <= width {
        return line.to_owned();
    }
    let words = wrap(line, width - hanging - 2);
    format!("{:indent$}{}", "", words.join(&format!(" \\\n{:hanging$}", "")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
Some text that is broken
by hand in two lines.

Entries:
  first                 what the first of them is, and
                        more of it
  a-very-long-entry-that-takes-more-than-half-of-it     what this one is said to be
  unvme perf -r mem:block:1G --matrix threads=1,2 depth=1..256 -t 1 --report unvme-report.html

The end.";

    #[test]
    fn paragraphs_are_one_line_and_entries_fit() {
        assert_eq!(
            fit(TEXT, 60),
            "\
Some text that is broken by hand in two lines.

Entries:
  first                 what the first of them is, and more
                        of it
  a-very-long-entry-that-takes-more-than-half-of-it
          what this one is said to be
  unvme perf -r mem:block:1G --matrix threads=1,2 \\
      depth=1..256 -t 1 --report unvme-report.html

The end."
        );
    }

    #[test]
    fn every_width_keeps_every_word() {
        let words = |text: &str| -> Vec<String> {
            text.split_whitespace().filter(|word| *word != "\\").map(str::to_owned).collect()
        };
        for width in WIDTH_MIN..=WIDTH_MAX {
            let fitted = fit(TEXT, width);
            assert_eq!(words(&fitted), words(TEXT));
            let long = fitted.lines().filter(|line| line.starts_with(' ') && line.len() > width);
            // A word that is longer than the line stays whole.
            assert!(long.clone().all(|line| line.trim().split(' ').count() <= 2), "{width}: {fitted}");
        }
    }
}
