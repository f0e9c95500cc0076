//! Integers with meaning.

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($int:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(transparent)]
        pub struct $name(pub $int);

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

pub(crate) use id;

id! {
    /// Namespace identifier (Base 3.2.1.1). 0 names no namespace, `FFFFFFFFh` all of them.
    Nsid(u32)
}
id! {
    /// Queue identifier. 0 is the admin queue.
    Qid(u16)
}
id! {
    /// Command identifier: unique among the outstanding commands of one submission queue.
    Cid(u16)
}
id! {
    /// Logical block address, in units of the namespace's logical block size.
    Lba(u64)
}

impl Nsid {
    /// No namespace.
    pub const NONE: Self = Self(0);
    /// The broadcast value: every namespace.
    pub const ALL: Self = Self(u32::MAX);
}

impl Qid {
    /// The admin queue.
    pub const ADMIN: Self = Self(0);
}
