//! The ioctls of `<linux/vfio.h>`, and the structures that vfio-user did not take over ([`crate::vfio_user`]
//! has the others: its messages carry the same ones).
// UNSAFETY: ioctl(2) takes an address.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::io;
use std::mem::offset_of;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

pub(super) use crate::vfio_user::wire::{
    CAP_SPARSE_MMAP, CapHeader, DEVICE_PCI, DEVICE_RESETTABLE, DMA_READABLE, DMA_WRITABLE, DeviceInfo,
    DmaMap, DmaUnmap, IRQ_ACTION_TRIGGER, IRQ_DATA_EVENTFD, IRQ_EVENTFD, IRQ_MSIX, IrqInfo, REGION_CONFIG,
    REGION_HAS_CAPS, REGION_MAPPABLE, RegionInfo, SetIrqs, SparseArea, SparseHeader,
};

// The structures are little-endian as vfio-user says, and the kernel's are those of the machine.
const _: () = assert!(cfg!(target_endian = "little"));

/// An ioctl of VFIO: `_IO(';', 100 + n)`.
#[derive(Clone, Copy)]
pub(super) struct Request {
    number: u32,
    pub(super) name: &'static str,
}

impl Request {
    const fn new(n: u32, name: &'static str) -> Self {
        Self { number: (b';' as u32) << 8 | (100 + n), name }
    }
}

pub(super) const GET_API_VERSION: Request = Request::new(0, "VFIO_GET_API_VERSION");
pub(super) const CHECK_EXTENSION: Request = Request::new(1, "VFIO_CHECK_EXTENSION");
pub(super) const SET_IOMMU: Request = Request::new(2, "VFIO_SET_IOMMU");
pub(super) const GROUP_GET_STATUS: Request = Request::new(3, "VFIO_GROUP_GET_STATUS");
const GROUP_SET_CONTAINER: Request = Request::new(4, "VFIO_GROUP_SET_CONTAINER");
const GROUP_GET_DEVICE_FD: Request = Request::new(6, "VFIO_GROUP_GET_DEVICE_FD");
pub(super) const DEVICE_GET_INFO: Request = Request::new(7, "VFIO_DEVICE_GET_INFO");
pub(super) const DEVICE_GET_REGION_INFO: Request = Request::new(8, "VFIO_DEVICE_GET_REGION_INFO");
pub(super) const DEVICE_GET_IRQ_INFO: Request = Request::new(9, "VFIO_DEVICE_GET_IRQ_INFO");
pub(super) const DEVICE_SET_IRQS: Request = Request::new(10, "VFIO_DEVICE_SET_IRQS");
pub(super) const DEVICE_RESET: Request = Request::new(11, "VFIO_DEVICE_RESET");
pub(super) const IOMMU_GET_INFO: Request = Request::new(12, "VFIO_IOMMU_GET_INFO");
pub(super) const IOMMU_MAP_DMA: Request = Request::new(13, "VFIO_IOMMU_MAP_DMA");
pub(super) const IOMMU_UNMAP_DMA: Request = Request::new(14, "VFIO_IOMMU_UNMAP_DMA");

/// The version of all this.
pub(super) const API_VERSION: i32 = 0;
/// `VFIO_TYPE1v2_IOMMU`: an IOMMU behind which unmapping takes back exactly what was mapped.
pub(super) const TYPE1V2_IOMMU: u64 = 3;
/// All devices of the group are out of the kernel's hands.
pub(super) const GROUP_VIABLE: u32 = 1 << 0;
/// Index of the interrupt by which the kernel asks for the device back.
pub(super) const IRQ_REQUEST: u32 = 4;

/// `struct vfio_group_status`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct GroupStatus {
    pub(super) argsz: U32,
    pub(super) flags: U32,
}

/// `struct vfio_iommu_type1_info`; capabilities follow.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct IommuInfo {
    pub(super) argsz: U32,
    pub(super) flags: U32,
    pub(super) page_sizes: U64,
    pub(super) cap_offset: U32,
    pub(super) padding: U32,
}

/// [`IommuInfo::flags`]: capabilities follow.
pub(super) const IOMMU_HAS_CAPS: u32 = 1 << 1;
/// A capability of the IOMMU: a count, 4 bytes of padding and the [`IovaRange`]s it translates.
pub(super) const IOMMU_CAP_IOVA_RANGE: u16 = 1;
/// A capability of the IOMMU: how many more ranges can be mapped.
pub(super) const IOMMU_CAP_DMA_AVAIL: u16 = 3;

/// `struct vfio_iova_range`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct IovaRange {
    pub(super) first: U64,
    /// Itself part of the range.
    pub(super) last: U64,
}

const _: () = {
    assert!(size_of::<GroupStatus>() == 8);
    assert!(size_of::<IommuInfo>() == 24 && offset_of!(IommuInfo, cap_offset) == 16);
    assert!(size_of::<IovaRange>() == 16 && offset_of!(IovaRange, last) == 8);
};

/// Longest answer taken.
const ANSWER_BYTES_MAX: usize = 1 << 16;

/// An ioctl whose argument is a number, or nothing.
pub(super) fn call(fd: impl AsFd, request: Request, argument: u64) -> io::Result<i32> {
    // SAFETY: the requests this is used for take no address. Given one that does, the kernel takes the number
    // for an address of this process: that is why every request is used in this folder alone, and those with
    // an address by the functions below.
    check(unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), request.number.into(), argument) })
}

/// An ioctl whose argument is a structure that starts with its size, `argsz`, which is filled in here.
pub(super) fn exchange(fd: impl AsFd, request: Request, argument: &mut [u8]) -> io::Result<i32> {
    let bytes = u32::try_from(argument.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let Some(argsz) = argument.first_chunk_mut() else { return Err(io::ErrorKind::InvalidInput.into()) };
    *argsz = bytes.to_ne_bytes();
    // SAFETY: the kernel reads and writes no more than argsz bytes of the argument, which is that long and
    // exclusive.
    check(unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), request.number.into(), argument.as_mut_ptr()) })
}

/// [`exchange`] for a question whose answer may be longer: asks again when the kernel says so.
pub(super) fn ask(
    fd: impl AsFd,
    request: Request,
    question: &(impl IntoBytes + Immutable),
) -> io::Result<Vec<u8>> {
    let fd = fd.as_fd();
    let question = question.as_bytes();
    let mut bytes = question.to_vec();
    exchange(fd, request, &mut bytes)?;
    let wanted = bytes.first_chunk().map_or(0, |argsz| u32::from_ne_bytes(*argsz) as usize);
    if wanted > bytes.len() {
        if wanted > ANSWER_BYTES_MAX {
            return Err(io::Error::other(format!("{} wants to answer {wanted} bytes", request.name)));
        }
        bytes = question.to_vec();
        bytes.resize(wanted, 0);
        exchange(fd, request, &mut bytes)?;
    }
    Ok(bytes)
}

/// Puts a group into a container.
pub(super) fn set_container(group: impl AsFd, container: impl AsFd) -> io::Result<()> {
    let container: i32 = container.as_fd().as_raw_fd();
    let request = GROUP_SET_CONTAINER.number.into();
    // SAFETY: the argument is the address of an int, which the kernel reads.
    check(unsafe { libc::ioctl(group.as_fd().as_raw_fd(), request, &raw const container) }).map(drop)
}

/// Opens the device called `name` of a group.
pub(super) fn device_fd(group: impl AsFd, name: &CStr) -> io::Result<OwnedFd> {
    let request = GROUP_GET_DEVICE_FD.number.into();
    // SAFETY: the argument is a string that ends, which the kernel reads.
    let fd = check(unsafe { libc::ioctl(group.as_fd().as_raw_fd(), request, name.as_ptr()) })?;
    // SAFETY: the kernel has just made this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn check(result: libc::c_int) -> io::Result<i32> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// What follows the header of capability `id` in an `answer` whose list of capabilities starts at `first`.
/// The list comes from the kernel, and is followed for as long as it makes sense.
pub(super) fn capability(answer: &[u8], first: u32, id: u16) -> Option<&[u8]> {
    let mut at = first;
    while at != 0 {
        let (header, rest) = CapHeader::ref_from_prefix(answer.get(at as usize..)?).ok()?;
        if header.id.get() == id {
            return Some(rest);
        }
        // Each one lies behind the one before it.
        at = Some(header.next.get()).filter(|next| *next > at)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use vfio_bindings::bindings::vfio as linux;

    use super::*;

    #[test]
    fn requests_and_structures_are_those_of_linux() {
        assert_eq!(linux::VFIO_TYPE, b';');
        assert_eq!(GET_API_VERSION.number, 0x3b64);
        assert_eq!(IOMMU_UNMAP_DMA.number, 0x3b72);
        assert_eq!(u64::from(linux::VFIO_TYPE1v2_IOMMU), TYPE1V2_IOMMU);
        assert_eq!(linux::VFIO_GROUP_FLAGS_VIABLE, GROUP_VIABLE);
        assert_eq!(linux::VFIO_PCI_REQ_IRQ_INDEX, IRQ_REQUEST);
        assert_eq!(linux::VFIO_PCI_MSIX_IRQ_INDEX, IRQ_MSIX);
        assert_eq!(linux::VFIO_IOMMU_INFO_CAPS, IOMMU_HAS_CAPS);
        assert_eq!(linux::VFIO_IOMMU_TYPE1_INFO_CAP_IOVA_RANGE, u32::from(IOMMU_CAP_IOVA_RANGE));
        assert_eq!(linux::VFIO_IOMMU_TYPE1_INFO_DMA_AVAIL, u32::from(IOMMU_CAP_DMA_AVAIL));
        assert_eq!(size_of::<linux::vfio_group_status>(), size_of::<GroupStatus>());
        assert_eq!(size_of::<linux::vfio_iommu_type1_info>(), size_of::<IommuInfo>());
        assert_eq!(size_of::<linux::vfio_iommu_type1_dma_map>(), size_of::<DmaMap>());
        assert_eq!(size_of::<linux::vfio_region_info>(), size_of::<RegionInfo>());
        assert_eq!(size_of::<linux::vfio_irq_info>(), size_of::<IrqInfo>());
    }

    #[test]
    fn capabilities_are_found_and_lists_that_make_no_sense_end() {
        let mut answer = vec![0; 64];
        answer[24..32].copy_from_slice(&[1, 0, 1, 0, 40, 0, 0, 0]);
        answer[40..48].copy_from_slice(&[3, 0, 1, 0, 0, 0, 0, 0]);
        answer[48] = 0xaa;
        assert_eq!(capability(&answer, 24, 3).and_then(|rest| rest.first()), Some(&0xaa));
        assert_eq!(capability(&answer, 24, 2), None);
        assert_eq!(capability(&answer, 0, 3), None);
        assert_eq!(capability(&answer, 60, 3), None);
        assert_eq!(capability(&answer, u32::MAX, 3), None);
        // A loop.
        answer[44] = 24;
        assert_eq!(capability(&answer, 24, 2), None);
    }
}
