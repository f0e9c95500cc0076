//! Opcodes of the admin commands (Base figure 141).

/// Delete I/O Submission Queue.
pub const DELETE_IO_SQ: u8 = 0x00;
/// Create I/O Submission Queue.
pub const CREATE_IO_SQ: u8 = 0x01;
/// Get Log Page.
pub const GET_LOG_PAGE: u8 = 0x02;
/// Delete I/O Completion Queue.
pub const DELETE_IO_CQ: u8 = 0x04;
/// Create I/O Completion Queue.
pub const CREATE_IO_CQ: u8 = 0x05;
/// Identify.
pub const IDENTIFY: u8 = 0x06;
/// Abort.
pub const ABORT: u8 = 0x08;
/// Set Features.
pub const SET_FEATURES: u8 = 0x09;
/// Get Features.
pub const GET_FEATURES: u8 = 0x0a;
/// Asynchronous Event Request.
pub const ASYNC_EVENT_REQUEST: u8 = 0x0c;
/// Namespace Management.
pub const NAMESPACE_MANAGEMENT: u8 = 0x0d;
/// Firmware Commit.
pub const FIRMWARE_COMMIT: u8 = 0x10;
/// Firmware Image Download.
pub const FIRMWARE_DOWNLOAD: u8 = 0x11;
/// Device Self-test.
pub const DEVICE_SELF_TEST: u8 = 0x14;
/// Namespace Attachment.
pub const NAMESPACE_ATTACHMENT: u8 = 0x15;
/// Keep Alive.
pub const KEEP_ALIVE: u8 = 0x18;
/// Directive Send.
pub const DIRECTIVE_SEND: u8 = 0x19;
/// Directive Receive.
pub const DIRECTIVE_RECEIVE: u8 = 0x1a;
/// Virtualization Management.
pub const VIRTUALIZATION_MANAGEMENT: u8 = 0x1c;
/// NVMe-MI Send.
pub const NVME_MI_SEND: u8 = 0x1d;
/// NVMe-MI Receive.
pub const NVME_MI_RECEIVE: u8 = 0x1e;
/// Capacity Management.
pub const CAPACITY_MANAGEMENT: u8 = 0x20;
/// Lockdown.
pub const LOCKDOWN: u8 = 0x24;
/// Doorbell Buffer Config.
pub const DOORBELL_BUFFER_CONFIG: u8 = 0x7c;
/// Fabrics commands.
pub const FABRICS: u8 = 0x7f;
/// Format NVM.
pub const FORMAT_NVM: u8 = 0x80;
/// Security Send.
pub const SECURITY_SEND: u8 = 0x81;
/// Security Receive.
pub const SECURITY_RECEIVE: u8 = 0x82;
/// Sanitize.
pub const SANITIZE: u8 = 0x84;
/// Get LBA Status.
pub const GET_LBA_STATUS: u8 = 0x86;
