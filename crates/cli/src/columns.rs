//! Tables of text: columns as wide as they need to be, two blanks apart.

use std::io::{self, Write};

/// What lies between the headers and the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// Nothing.
    None,
    /// Dashes as long as each column is wide.
    Dashes,
}

/// Writes a table; no line ends in blanks.
pub(crate) fn write_table<const N: usize>(
    out: &mut dyn Write,
    headers: &[&str; N],
    rule: Rule,
    rows: &[[String; N]],
) -> io::Result<()> {
    let rows: Vec<&[String]> = rows.iter().map(|row| row.as_slice()).collect();
    write_rows(out, headers, rule, &rows)
}

/// The same, of as many columns as there are headers; each row has as many cells.
pub(crate) fn write_rows(
    out: &mut dyn Write,
    headers: &[&str],
    rule: Rule,
    rows: &[&[String]],
) -> io::Result<()> {
    // In characters, as `format!` pads.
    let width = |(column, header): (usize, &&str)| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain([header.chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = headers.iter().enumerate().map(width).collect();
    let mut line = |cells: &[&str]| {
        let padded: Vec<String> =
            cells.iter().zip(&widths).map(|(cell, &width)| format!("{cell:width$}")).collect();
        writeln!(out, "{}", padded.join("  ").trim_end())
    };
    line(headers)?;
    if rule == Rule::Dashes {
        let dashes: Vec<String> = widths.iter().map(|&width| "-".repeat(width)).collect();
        line(&dashes.iter().map(String::as_str).collect::<Vec<&str>>())?;
    }
    rows.iter().try_for_each(|row| line(&row.iter().map(String::as_str).collect::<Vec<&str>>()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(rule: Rule) -> String {
        let mut out = Vec::new();
        let rows = [["\u{e9}t\u{e9}", "2"], ["a", ""]].map(|row| row.map(str::to_owned));
        write_table(&mut out, &["N", "Size"], rule, &rows).expect("a vector");
        String::from_utf8(out).expect("UTF-8")
    }

    #[test]
    fn columns_are_as_wide_as_their_longest_cell_in_characters() {
        assert_eq!(table(Rule::None), "N    Size\n\u{e9}t\u{e9}  2\na\n");
        assert_eq!(table(Rule::Dashes), "N    Size\n---  ----\n\u{e9}t\u{e9}  2\na\n");
    }
}
