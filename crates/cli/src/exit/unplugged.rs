//! Errors whose reason is that a virtual device was unplugged.

use unvme::{Error, PciAddress, Registry};

/// The virtual device a message is about, if it is unplugged: the reason why a command on it has failed,
/// whatever else the message says.
pub(super) fn reason(line: &str) -> Option<Error> {
    let registry = Registry::from_environment().ok()?;
    let address =
        addresses(line).find(|&address| registry.find(address).is_some_and(|s| s.is_unplugged()))?;
    Some(Error::Unplugged { name: address.to_string() })
}

fn addresses(line: &str) -> impl Iterator<Item = PciAddress> {
    line.split([' ', ',', ';', '(', ')', '/']).filter_map(|word| word.trim_end_matches(':').parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_addresses_in_a_message_are_found() {
        let found = |line: &str| addresses(line).map(|address| address.to_string()).collect::<Vec<_>>();
        assert_eq!(found("0000:02:00.0: the controller is gone: its registers"), ["0000:02:00.0"]);
        assert_eq!(found("open 02:00.0: no; /run/0000:82:00.0/cntrl"), ["0000:02:00.0", "0000:82:00.0"]);
        assert_eq!(found("mem:block:1G: 12:30, 4.0 of 02:00"), Vec::<String>::new());
    }
}
