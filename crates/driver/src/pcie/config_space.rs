//! What a host does in PCI configuration space before it touches registers.

use unvme_bus::Function;

use crate::Error;

const COMMAND: usize = 0x04;
const STATUS: usize = 0x06;
const CLASS: usize = 0x09;
const CAPABILITIES: usize = 0x34;

const COMMAND_MEMORY_SPACE: u16 = 1 << 1;
const COMMAND_BUS_MASTER: u16 = 1 << 2;
const COMMAND_INTERRUPT_DISABLE: u16 = 1 << 10;
const STATUS_CAPABILITIES: u16 = 1 << 4;

/// Programming interface, sub-class and class: NVM Express I/O controller (PCIe Transport 3.1.1).
const CLASS_NVME: [u8; 3] = [0x02, 0x08, 0x01];

const CAPABILITY_MSI_X: u8 = 0x11;
const MSI_X_ENABLE: u16 = 1 << 15;
const MSI_X_FUNCTION_MASK: u16 = 1 << 14;
/// As many capabilities as fit between the header and the end of the first 256 bytes: a list that is longer
/// is a loop.
const CAPABILITIES_MAX: usize = 48;

fn read16(function: &dyn Function, offset: usize) -> Result<u16, Error> {
    let mut bytes = [0; 2];
    function.config_read(offset, &mut bytes)?;
    Ok(u16::from_le_bytes(bytes))
}

/// Checks that the function is an NVMe controller.
pub(crate) fn check_class(function: &dyn Function) -> Result<(), Error> {
    let mut class = [0; 3];
    function.config_read(CLASS, &mut class)?;
    if class == CLASS_NVME {
        return Ok(());
    }
    let [interface, sub_class, base] = class;
    Err(Error::Unsupported(format!(
        "the function has class code {base:02x}{sub_class:02x}{interface:02x}, an NVMe controller has 010802"
    )))
}

/// Lets the function decode its BARs. It reaches memory only after [`enable`]: a controller that a killed
/// process left enabled still has the queues and commands of that process, whose memory may be somebody
/// else's by now.
pub(crate) fn enable_registers(function: &dyn Function) -> Result<(), Error> {
    switch_on(function, COMMAND_MEMORY_SPACE | COMMAND_INTERRUPT_DISABLE)
}

/// Lets the function, whose controller is disabled, reach memory and send message interrupts.
pub(crate) fn enable(function: &dyn Function) -> Result<(), Error> {
    switch_on(function, COMMAND_MEMORY_SPACE | COMMAND_BUS_MASTER | COMMAND_INTERRUPT_DISABLE)?;
    if let Some(msi_x) = find_capability(function, CAPABILITY_MSI_X)? {
        let control = read16(function, msi_x + 2)?;
        let wanted = control & !MSI_X_FUNCTION_MASK | MSI_X_ENABLE;
        function.config_write(msi_x + 2, &wanted.to_le_bytes())?;
    }
    Ok(())
}

fn switch_on(function: &dyn Function, bits: u16) -> Result<(), Error> {
    let command = read16(function, COMMAND)?;
    Ok(function.config_write(COMMAND, &(command | bits).to_le_bytes())?)
}

fn find_capability(function: &dyn Function, wanted: u8) -> Result<Option<usize>, Error> {
    if read16(function, STATUS)? & STATUS_CAPABILITIES == 0 {
        return Ok(None);
    }
    let mut pointer = [0; 1];
    function.config_read(CAPABILITIES, &mut pointer)?;
    let mut at = usize::from(pointer[0] & 0xfc);
    for _ in 0..CAPABILITIES_MAX {
        if at == 0 {
            break;
        }
        let mut header = [0; 2];
        function.config_read(at, &mut header)?;
        let [id, next] = header;
        if id == wanted {
            return Ok(Some(at));
        }
        at = usize::from(next & 0xfc);
    }
    Ok(None)
}
