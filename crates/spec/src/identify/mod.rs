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

codes! {
    /// Controller or Namespace Structure: what Identify returns (Base figure 310).
    pub mod cns: u8 {
        NAMESPACE = 0x00, "Identify Namespace of the NVM Command Set";
        CONTROLLER = 0x01, "Identify Controller";
        ACTIVE_NAMESPACES = 0x02, "Active Namespace ID list";
        NAMESPACE_DESCRIPTORS = 0x03, "Namespace Identification Descriptor list";
        NVM_SETS = 0x04, "NVM Set list";
        COMMAND_SET_NAMESPACE = 0x05, "I/O Command Set specific Identify Namespace";
        COMMAND_SET_CONTROLLER = 0x06, "I/O Command Set specific Identify Controller";
        COMMAND_SET_ACTIVE_NAMESPACES = 0x07, "I/O Command Set specific Active Namespace ID list";
        INDEPENDENT_NAMESPACE = 0x08, "I/O Command Set Independent Identify Namespace";
        NAMESPACE_FOR_FORMAT = 0x09, "Identify Namespace of the NVM Command Set for a format index";
        COMMAND_SET_NAMESPACE_FOR_FORMAT = 0x0a,
            "I/O Command Set specific Identify Namespace for a format index";
        ALLOCATED_NAMESPACES = 0x10, "Allocated Namespace ID list";
        ALLOCATED_NAMESPACE = 0x11, "Identify Namespace of an allocated namespace";
        ATTACHED_CONTROLLERS = 0x12, "Controllers a namespace is attached to";
        CONTROLLERS = 0x13, "Controllers of the NVM subsystem";
        PRIMARY_CONTROLLER = 0x14, "Primary Controller Capabilities";
        SECONDARY_CONTROLLERS = 0x15, "Secondary Controller list";
        NAMESPACE_GRANULARITY = 0x16, "Namespace Granularity list";
        UUIDS = 0x17, "UUID list";
        DOMAINS = 0x18, "Domain list";
        ENDURANCE_GROUPS = 0x19, "Endurance Group list";
        COMMAND_SET_ALLOCATED_NAMESPACES = 0x1a, "I/O Command Set specific Allocated Namespace ID list";
        COMMAND_SET_ALLOCATED_NAMESPACE = 0x1b,
            "I/O Command Set specific Identify Namespace of an allocated namespace";
        IO_COMMAND_SETS = 0x1c, "I/O Command Sets: the combinations the controller supports";
    }

    /// Command Set Identifiers (Base figure 311).
    pub mod csi: u8 {
        NVM = 0x00, "NVM Command Set";
        KEY_VALUE = 0x01, "Key Value Command Set";
        ZONED = 0x02, "Zoned Namespace Command Set";
        SUBSYSTEM_LOCAL_MEMORY = 0x03, "Subsystem Local Memory Command Set";
        COMPUTATIONAL_PROGRAMS = 0x04, "Computational Programs Command Set";
    }
}
