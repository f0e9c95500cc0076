//! PCI addresses: how devices are named.

use std::fmt;
use std::str::FromStr;

/// Devices on a bus.
const DEVICE_MAX: u8 = 31;
/// Functions of a device.
const FUNCTION_MAX: u8 = 7;

/// A PCI address, `domain:bus:device.function` in hexadecimal.
///
/// Parses the long form `0000:02:00.0` and the short form `02:00.0`, which means domain 0. Displays in the
/// long form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PciAddress {
    /// PCI domain (segment).
    pub domain: u16,
    /// Bus.
    pub bus: u8,
    /// Device on the bus, 0 to 31.
    pub device: u8,
    /// Function of the device, 0 to 7.
    pub function: u8,
}

/// The text is not a PCI address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a PCI address is `domain:bus:device.function` in hexadecimal, for example 0000:02:00.0")]
pub struct NotAnAddress;

impl FromStr for PciAddress {
    type Err = NotAnAddress;

    fn from_str(text: &str) -> Result<Self, NotAnAddress> {
        let (buses, function) = text.rsplit_once('.').ok_or(NotAnAddress)?;
        let mut parts = buses.split(':').rev();
        let device = field(parts.next().ok_or(NotAnAddress)?, 2)?;
        let bus = field(parts.next().ok_or(NotAnAddress)?, 2)?;
        let domain = parts.next().map_or(Ok(0), |text| field(text, 4))?;
        let function = field(function, 1)?;
        if parts.next().is_some() || device > u16::from(DEVICE_MAX) || function > u16::from(FUNCTION_MAX) {
            return Err(NotAnAddress);
        }
        // Two digits, or the bounds above: each fits.
        Ok(Self { domain, bus: bus as u8, device: device as u8, function: function as u8 })
    }
}

/// A number of exactly `digits` hexadecimal digits, at most four.
fn field(text: &str, digits: usize) -> Result<u16, NotAnAddress> {
    if text.len() != digits || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err(NotAnAddress);
    }
    u16::from_str_radix(text, 16).map_err(|_| NotAnAddress)
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { domain, bus, device, function } = self;
        f.pad(&format!("{domain:04x}:{bus:02x}:{device:02x}.{function}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_long_and_the_short_form_name_the_same_device() {
        let address = PciAddress { domain: 0, bus: 2, device: 0x1f, function: 7 };
        assert_eq!("0000:02:1f.7".parse(), Ok(address));
        assert_eq!("02:1f.7".parse(), Ok(address));
        assert_eq!("02:1F.7".parse(), Ok(address));
        assert_eq!(address.to_string(), "0000:02:1f.7");
        assert_eq!(
            "abcd:ef:00.0".parse::<PciAddress>().map(|a| a.to_string()).as_deref(),
            Ok("abcd:ef:00.0")
        );
    }

    #[test]
    fn what_is_not_an_address_is_refused() {
        for text in [
            "",
            ".",
            ":",
            "02:00",
            "2:00.0",
            "02:00.8",
            "02:20.0",
            "0:02:00.0",
            "0000:02:00.0.0",
            "00000:02:00.0",
            "1:0000:02:00.0",
            "+0:00.0",
            "0000:02:00.-",
            "../02:00.0",
            "02:00.0 ",
            "é2:00.0",
        ] {
            assert_eq!(text.parse::<PciAddress>(), Err(NotAnAddress), "{text:?}");
        }
    }
}
