//! SPDX licence expressions, as far as `Cargo.toml` files use them.

/// Whether `expression` can be satisfied by taking only licences that `accepts` takes.
///
/// `OR` needs one side, `AND` both; a licence `WITH` an exception is handed over as one name. The slash of
/// old manifests (`MIT/Apache-2.0`) means `OR`. `Err` names what could not be understood.
pub(crate) fn satisfied(expression: &str, accepts: &dyn Fn(&str) -> bool) -> Result<bool, String> {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let mut parser = Parser { words: spaced.split_whitespace().peekable(), accepts };
    let verdict = parser.any_of()?;
    match parser.words.next() {
        None => Ok(verdict),
        Some(rest) => Err(format!("`{rest}` is out of place in `{expression}`")),
    }
}

struct Parser<'a, I: Iterator<Item = &'a str>> {
    words: std::iter::Peekable<I>,
    accepts: &'a dyn Fn(&str) -> bool,
}

impl<'a, I: Iterator<Item = &'a str>> Parser<'a, I> {
    fn any_of(&mut self) -> Result<bool, String> {
        let mut verdict = self.all_of()?;
        while self.words.next_if_eq(&"OR").is_some() {
            // Both sides are always parsed: `||` must not skip the right one.
            verdict |= self.all_of()?;
        }
        Ok(verdict)
    }

    fn all_of(&mut self) -> Result<bool, String> {
        let mut verdict = self.one()?;
        while self.words.next_if_eq(&"AND").is_some() {
            verdict &= self.one()?;
        }
        Ok(verdict)
    }

    fn one(&mut self) -> Result<bool, String> {
        match self.words.next() {
            None => Err("the licence expression ends too early".to_owned()),
            Some("(") => {
                let verdict = self.any_of()?;
                match self.words.next() {
                    Some(")") => Ok(verdict),
                    _ => Err("a bracket of the licence expression is not closed".to_owned()),
                }
            }
            Some(word @ (")" | "AND" | "OR" | "WITH")) => {
                Err(format!("`{word}` where a licence was expected"))
            }
            Some(licence) if self.words.next_if_eq(&"WITH").is_some() => {
                let exception = self.words.next().ok_or("`WITH` without an exception")?;
                Ok((self.accepts)(&format!("{licence} WITH {exception}")))
            }
            Some(licence) => Ok((self.accepts)(licence)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::satisfied;

    fn mit_only(expression: &str) -> Result<bool, String> {
        satisfied(expression, &|licence| licence == "MIT")
    }

    #[test]
    fn or_needs_one_side_and_and_needs_both() {
        assert_eq!(mit_only("MIT"), Ok(true));
        assert_eq!(mit_only("Apache-2.0"), Ok(false));
        assert_eq!(mit_only("Apache-2.0 OR MIT"), Ok(true));
        assert_eq!(mit_only("MIT/Apache-2.0"), Ok(true));
        assert_eq!(mit_only("MIT AND Apache-2.0"), Ok(false));
    }

    #[test]
    fn and_binds_tighter_than_or_unless_bracketed() {
        assert_eq!(mit_only("MIT OR Apache-2.0 AND NCSA"), Ok(true));
        assert_eq!(mit_only("(MIT OR Apache-2.0) AND NCSA"), Ok(false));
    }

    #[test]
    fn an_exception_is_part_of_the_licence_name() {
        assert_eq!(mit_only("MIT WITH Anything"), Ok(false));
        assert_eq!(mit_only("Apache-2.0 WITH LLVM-exception OR Apache-2.0 OR MIT"), Ok(true));
    }

    #[test]
    fn a_broken_expression_is_an_error_and_not_a_yes() {
        for broken in ["", "MIT OR", "(MIT", "MIT)", "AND MIT", "MIT Apache-2.0", "MIT WITH"] {
            assert!(mit_only(broken).is_err(), "`{broken}` was accepted");
        }
    }
}
