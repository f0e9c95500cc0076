//! Identify data structures (Base 5.1.13): 4096 bytes each.

mod controller;
mod create;
mod descriptor;
mod independent;
mod kv;
mod list;
mod namespace;
pub mod text;

pub use controller::{
    IdentifyController, NvmControllerIdentify, PowerStateDescriptor, anacap, cmic, ctratt, fna, frmw, fuses,
    lpa, oacs, oaes, oncs, sgls, vwc,
};
pub use create::NamespaceCreate;
pub use descriptor::{DescriptorIter, NamespaceIdDescriptor, nidt, write_descriptors};
pub use independent::{IndependentNamespace, nstat};
pub use kv::{
    KV_FORMATS_MAX, KV_VERSION_1_3, KvControllerIdentify, KvFormat, KvNamespaceCreate, KvNamespaceIdentify,
};
pub use list::{ControllerList, IoCommandSets, NamespaceList};
pub use namespace::{IdentifyNamespace, LbaFormat, NvmNamespaceIdentify, nsfeat};

/// Bytes of every Identify data structure.
pub const IDENTIFY_BYTES: usize = 4096;

/// Controller or Namespace Structure: what Identify returns (Base figure 310).
pub mod cns {
    /// Identify Namespace of the NVM Command Set.
    pub const NAMESPACE: u8 = 0x00;
    /// Identify Controller.
    pub const CONTROLLER: u8 = 0x01;
    /// Active Namespace ID list.
    pub const ACTIVE_NAMESPACES: u8 = 0x02;
    /// Namespace Identification Descriptor list.
    pub const NAMESPACE_DESCRIPTORS: u8 = 0x03;
    /// NVM Set list.
    pub const NVM_SETS: u8 = 0x04;
    /// I/O Command Set specific Identify Namespace.
    pub const COMMAND_SET_NAMESPACE: u8 = 0x05;
    /// I/O Command Set specific Identify Controller.
    pub const COMMAND_SET_CONTROLLER: u8 = 0x06;
    /// I/O Command Set specific Active Namespace ID list.
    pub const COMMAND_SET_ACTIVE_NAMESPACES: u8 = 0x07;
    /// I/O Command Set Independent Identify Namespace.
    pub const INDEPENDENT_NAMESPACE: u8 = 0x08;
    /// Identify Namespace of the NVM Command Set for a format index.
    pub const NAMESPACE_FOR_FORMAT: u8 = 0x09;
    /// I/O Command Set specific Identify Namespace for a format index.
    pub const COMMAND_SET_NAMESPACE_FOR_FORMAT: u8 = 0x0a;
    /// Allocated Namespace ID list.
    pub const ALLOCATED_NAMESPACES: u8 = 0x10;
    /// Identify Namespace of an allocated namespace.
    pub const ALLOCATED_NAMESPACE: u8 = 0x11;
    /// Controllers a namespace is attached to.
    pub const ATTACHED_CONTROLLERS: u8 = 0x12;
    /// Controllers of the NVM subsystem.
    pub const CONTROLLERS: u8 = 0x13;
    /// Primary Controller Capabilities.
    pub const PRIMARY_CONTROLLER: u8 = 0x14;
    /// Secondary Controller list.
    pub const SECONDARY_CONTROLLERS: u8 = 0x15;
    /// Namespace Granularity list.
    pub const NAMESPACE_GRANULARITY: u8 = 0x16;
    /// UUID list.
    pub const UUIDS: u8 = 0x17;
    /// Domain list.
    pub const DOMAINS: u8 = 0x18;
    /// Endurance Group list.
    pub const ENDURANCE_GROUPS: u8 = 0x19;
    /// I/O Command Set specific Allocated Namespace ID list.
    pub const COMMAND_SET_ALLOCATED_NAMESPACES: u8 = 0x1a;
    /// I/O Command Set specific Identify Namespace of an allocated namespace.
    pub const COMMAND_SET_ALLOCATED_NAMESPACE: u8 = 0x1b;
    /// I/O Command Sets: the combinations the controller supports.
    pub const IO_COMMAND_SETS: u8 = 0x1c;
}

/// Command Set Identifiers (Base figure 311).
pub mod csi {
    /// NVM Command Set.
    pub const NVM: u8 = 0x00;
    /// Key Value Command Set.
    pub const KEY_VALUE: u8 = 0x01;
    /// Zoned Namespace Command Set.
    pub const ZONED: u8 = 0x02;
    /// Subsystem Local Memory Command Set.
    pub const SUBSYSTEM_LOCAL_MEMORY: u8 = 0x03;
    /// Computational Programs Command Set.
    pub const COMPUTATIONAL_PROGRAMS: u8 = 0x04;
}
