//! The list of exceptions.

/// One line of the list: `path[:function] max_lines reason`, or `path:item unused reason`.
struct Entry {
    line: usize,
    path: String,
    name: Option<String>,
    /// None when it is about an item that nobody uses.
    lines_max: Option<usize>,
    used: bool,
}

/// The list as read, and which of it was needed so far.
pub(super) struct Allowed {
    file: String,
    entries: Vec<Entry>,
}

impl Allowed {
    /// Reads the list; `#` starts a comment. The second value holds what is wrong with it.
    pub(super) fn parse(file: &str, text: &str) -> (Self, Vec<String>) {
        let mut entries: Vec<Entry> = Vec::new();
        let mut problems = Vec::new();
        for (index, content) in text.lines().enumerate() {
            let line = index + 1;
            let content = content.trim();
            if content.is_empty() || content.starts_with('#') {
                continue;
            }
            let Some(entry) = parse_entry(line, content) else {
                problems.push(format!(
                    "{file}:{line}: expected `path[:function] max_lines reason` or `path:item unused reason`"
                ));
                continue;
            };
            if let Some(first) = entries.iter().find(|e| {
                (&e.path, &e.name, e.lines_max.is_some())
                    == (&entry.path, &entry.name, entry.lines_max.is_some())
            }) {
                problems.push(format!("{file}:{line}: repeats line {}", first.line));
                continue;
            }
            entries.push(entry);
        }
        (Self { file: file.to_owned(), entries }, problems)
    }

    /// The limit that `lines` is above, if it is above: `usual`, or that of the exception for this place.
    pub(super) fn exceeded(
        &mut self,
        path: &str,
        function: Option<&str>,
        lines: usize,
        usual: usize,
    ) -> Option<usize> {
        if lines <= usual {
            return None;
        }
        let exception = self.entries.iter_mut().find_map(|entry| {
            let is_here = entry.path == path && entry.name.as_deref() == function;
            entry.lines_max.filter(|_| is_here).map(|lines_max| (lines_max, &mut entry.used))
        });
        let Some((lines_max, used)) = exception else { return Some(usual) };
        *used = true;
        (lines > lines_max).then_some(lines_max)
    }

    /// Whether the item `name` of a file may be one that nobody uses.
    pub(super) fn unused(&mut self, path: &str, name: &str) -> bool {
        let here = |entry: &&mut Entry| {
            entry.lines_max.is_none() && entry.path == path && entry.name.as_deref() == Some(name)
        };
        let found = self.entries.iter_mut().find(here);
        found.map(|entry| entry.used = true).is_some()
    }

    /// Exceptions that nothing asked for.
    pub(super) fn not_needed(&self) -> Vec<String> {
        let unused = self.entries.iter().filter(|entry| !entry.used);
        unused
            .map(|entry| {
                let place = entry.name.as_ref().map_or(String::new(), |name| format!(":{name}"));
                format!(
                    "{}:{}: {}{place} needs no exception; delete the line",
                    self.file, entry.line, entry.path
                )
            })
            .collect()
    }
}

fn parse_entry(line: usize, content: &str) -> Option<Entry> {
    let mut words = content.split_whitespace();
    let place = words.next()?;
    let lines_max = match words.next()? {
        "unused" => None,
        number => Some(number.parse().ok()?),
    };
    words.next()?; // At least one word of reason.
    let (path, name) = match place.split_once(':') {
        Some((path, name)) => (path, Some(name.to_owned())),
        None => (place, None),
    };
    let is_whole = name.is_some() || lines_max.is_some();
    is_whole.then(|| Entry { line, path: path.to_owned(), name, lines_max, used: false })
}

#[cfg(test)]
mod tests {
    use super::Allowed;

    #[test]
    fn a_line_without_a_number_or_a_reason_is_an_error() {
        for bad in
            ["a.rs", "a.rs 900", "a.rs many a table", "a.rs:f reason", "a.rs unused x", "a.rs:f unused"]
        {
            assert_eq!(Allowed::parse("list", bad).1.len(), 1, "`{bad}` was accepted");
        }
        assert!(Allowed::parse("list", "# a comment\n\na.rs 900 a table of codes\n").1.is_empty());
    }

    #[test]
    fn a_second_line_for_one_place_is_an_error() {
        let (_, problems) = Allowed::parse("list", "a.rs 900 one\na.rs:f 90 other\na.rs 950 two\n");
        assert_eq!(problems, ["list:3: repeats line 1"]);
    }

    #[test]
    fn an_exception_nobody_needs_is_an_error() {
        let (mut allowed, _) = Allowed::parse("list", "a.rs 900 long\nb.rs:f 90 gone\n");
        assert_eq!(allowed.exceeded("a.rs", None, 850, 800), None);
        assert_eq!(allowed.exceeded("b.rs", Some("f"), 60, 70), None);
        assert_eq!(allowed.not_needed(), ["list:2: b.rs:f needs no exception; delete the line"]);
    }

    #[test]
    fn an_exception_for_a_file_does_not_cover_its_functions() {
        let (mut allowed, _) = Allowed::parse("list", "a.rs 900 long\n");
        assert_eq!(allowed.exceeded("a.rs", Some("f"), 71, 70), Some(70));
    }
}
