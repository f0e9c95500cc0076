//! Percentages, as they are typed.

use std::fmt;
use std::str::FromStr;

/// A share between 0 and 1, typed in percent: `80`, `80%`, `7.5%`.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub(crate) struct Share(pub(crate) f64);

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = text.strip_suffix('%').unwrap_or(text);
        let plain = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        match number.parse::<f64>() {
            // 0.18 of somebody who means 18 % would be taken for next to nothing.
            Ok(percent) if plain && percent > 0.0 && percent < 1.0 && number == text => {
                Err(format!("`{text}` may be a percentage or a share; write {text}% or {}%", percent * 100.0))
            }
            Ok(percent) if plain && percent <= 100.0 => Ok(Self(percent / 100.0)),
            _ => Err(format!("`{text}` is no percentage, expected 0 to 100 such as 80 or 7.5%")),
        }
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}%", percent(self.0)))
    }
}

/// A share in percent without the noise of its binary form.
pub(crate) fn percent(share: f64) -> f64 {
    (share * 1e8).round() / 1e6
}

/// The exponent of a Zipf distribution: the k-th most popular of n in proportion to 1 / k^theta; 0 for all
/// alike.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Theta(pub(crate) f64);

/// Largest exponent: beyond it nearly all writes are to one page.
const THETA_MAX: f64 = 10.0;

impl FromStr for Theta {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse::<f64>() {
            Ok(theta) if (0.0..=THETA_MAX).contains(&theta) => Ok(Self(theta)),
            _ => Err(format!("`{text}` is no exponent, expected 0 to {THETA_MAX} such as 0.9")),
        }
    }
}

impl fmt::Display for Theta {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_typed_in_percent() {
        let share = |text: &str| text.parse::<Share>().map(|share| share.0);
        assert_eq!([share("80"), share("80%"), share("0.5%")], [Ok(0.8), Ok(0.8), Ok(0.005)]);
        assert_eq!([share("0"), share("100")], [Ok(0.0), Ok(1.0)]);
        for text in ["", "%", "101", "-1", "1e1", "nan", "+5", "5 %"] {
            assert!(share(text).is_err_and(|e| e.contains("no percentage")), "{text}");
        }
        assert!(share("0.18").is_err_and(|e| e.contains("write 0.18% or 18%")));
        assert_eq!((Share(0.07).to_string(), Share(1.0).to_string()), ("7%".into(), "100%".into()));
    }

    #[test]
    fn an_exponent_has_a_range() {
        let theta = |text: &str| text.parse::<Theta>().map(|theta| theta.0);
        assert_eq!([theta("0"), theta("0.9"), theta("10")], [Ok(0.0), Ok(0.9), Ok(10.0)]);
        for text in ["", "-0.1", "10.1", "nan", "x"] {
            assert!(theta(text).is_err(), "{text}");
        }
    }
}
