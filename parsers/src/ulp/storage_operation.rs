//! Operations of storage commands: their names and the direction of their data.

use alloc::borrow::Cow;
use alloc::format;

/// Operation codes of `NVMe`.
pub(super) const NVME_WRITE: u8 = 0x01;
pub(super) const NVME_READ: u8 = 0x02;
pub(super) const NVME_IDENTIFY: u8 = 0x06;
pub(super) const NVME_KEEP_ALIVE: u8 = 0x18;
const NVME_ZONE_APPEND: u8 = 0x7D;
/// Types of Fabrics commands of `NVMe`.
pub(super) const FABRICS_PROPERTY_SET: u8 = 0x00;
pub(super) const FABRICS_CONNECT: u8 = 0x01;
pub(super) const FABRICS_PROPERTY_GET: u8 = 0x04;
/// Procedures of NFS version 3, and operations of version 4.
pub(super) const NFS3_READ: u32 = 6;
pub(super) const NFS3_WRITE: u32 = 7;
pub(super) const NFS4_READ: u32 = 25;
pub(super) const NFS4_WRITE: u32 = 38;
pub(super) const NFS4_READ_PLUS: u32 = 68;

/// The operation of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum StorageOperation {
    /// `NVMe`: operation code of an admin or I/O command.
    Nvme(u8),
    /// `NVMe`: type of a Fabrics command.
    NvmeFabrics(u8),
    /// NFS version 3: procedure.
    Nfs3(u32),
    /// NFS version 4: the operation that a COMPOUND is for.
    Nfs4(u32),
    /// A remote procedure of another program or version.
    Rpc(u32),
    /// SCSI: operation code of a CDB.
    Scsi(u8),
    /// The captured part does not show it.
    Unknown,
    /// An operation beyond the limit of those counted separately.
    Other,
}

/// The direction of the data that an operation transfers to or from files or blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserData {
    /// None; the operation may still transfer other data, such as attributes.
    None,
    /// From the server to the client.
    Read,
    /// From the client to the server.
    Written,
    /// Not known.
    Unknown,
}

impl StorageOperation {
    /// The direction of the file or block data. An `NVMe` queue that is an admin queue has none.
    #[must_use]
    pub const fn user_data(self) -> UserData {
        match self {
            Self::Nvme(opcode) => nvme_user_data(opcode),
            Self::Scsi(opcode) => scsi_user_data(opcode),
            Self::Nfs3(NFS3_READ) | Self::Nfs4(NFS4_READ | NFS4_READ_PLUS) => UserData::Read,
            Self::Nfs3(NFS3_WRITE) | Self::Nfs4(NFS4_WRITE) => UserData::Written,
            Self::NvmeFabrics(_) | Self::Nfs3(_) | Self::Nfs4(_) | Self::Rpc(_) => UserData::None,
            Self::Unknown | Self::Other => UserData::Unknown,
        }
    }

    /// The name in the specification, in lower case. `is_admin` is the kind of an `NVMe` queue.
    #[must_use]
    pub fn name(self, is_admin: Option<bool>) -> Cow<'static, str> {
        let (known, code) = match self {
            Self::Nvme(opcode) => (is_admin.and_then(|is_admin| nvme_name(opcode, is_admin)), u32::from(opcode)),
            Self::NvmeFabrics(kind) => (fabrics_name(kind), u32::from(kind)),
            Self::Nfs3(procedure) => (name_of_v3(procedure), procedure),
            Self::Nfs4(operation) => (name_of_v4(operation), operation),
            Self::Rpc(program) => return Cow::Owned(format!("program {program}")),
            Self::Scsi(opcode) => (scsi_name(opcode), u32::from(opcode)),
            Self::Unknown => (Some("unknown"), 0),
            Self::Other => (Some("other"), 0),
        };
        known.map_or_else(|| Cow::Owned(format!("operation {code:#04x}")), Cow::Borrowed)
    }
}

/// File or block data of an I/O command.
const fn nvme_user_data(opcode: u8) -> UserData {
    match opcode {
        NVME_READ => UserData::Read,
        NVME_WRITE | NVME_ZONE_APPEND => UserData::Written,
        _ => UserData::None,
    }
}

/// The name of an operation code of `NVMe`.
const fn nvme_name(opcode: u8, is_admin: bool) -> Option<&'static str> {
    Some(match (is_admin, opcode) {
        (false, 0x00) => "flush",
        (false, NVME_WRITE) => "write",
        (false, NVME_READ) => "read",
        (false, 0x04) => "write uncorrectable",
        (false, 0x05) => "compare",
        (false, 0x08) => "write zeroes",
        (false, 0x09) => "dataset management",
        (false, 0x0C) => "verify",
        (false, 0x0D) => "reservation register",
        (false, 0x0E) => "reservation report",
        (false, 0x11) => "reservation acquire",
        (false, 0x15) => "reservation release",
        (true, 0x02) => "get log page",
        (true, NVME_IDENTIFY) => "identify",
        (true, 0x08) => "abort",
        (true, 0x09) => "set features",
        (true, 0x0A) => "get features",
        (true, 0x0C) => "asynchronous event request",
        (true, NVME_KEEP_ALIVE) => "keep alive",
        _ => return None,
    })
}

/// The name of a Fabrics command.
const fn fabrics_name(kind: u8) -> Option<&'static str> {
    Some(match kind {
        FABRICS_PROPERTY_SET => "property set",
        FABRICS_CONNECT => "connect",
        FABRICS_PROPERTY_GET => "property get",
        0x05 => "authentication send",
        0x06 => "authentication receive",
        0x08 => "disconnect",
        _ => return None,
    })
}

/// READ and WRITE commands of SCSI (SBC-4): 6, 10, 12, 16 and 32 bytes long; the last ones share an
/// operation code with other commands, so they are not among these.
const fn scsi_user_data(opcode: u8) -> UserData {
    match opcode {
        0x08 | 0x28 | 0xA8 | 0x88 => UserData::Read,
        0x0A | 0x2A | 0xAA | 0x8A | 0x2E | 0xAE | 0x8E => UserData::Written,
        0x7F => UserData::Unknown,
        _ => UserData::None,
    }
}

const fn scsi_name(opcode: u8) -> Option<&'static str> {
    Some(match opcode {
        0x00 => "test unit ready",
        0x03 => "request sense",
        0x08 | 0x28 | 0xA8 | 0x88 => "read",
        0x0A | 0x2A | 0xAA | 0x8A => "write",
        0x12 => "inquiry",
        0x1A | 0x5A => "mode sense",
        0x25 => "read capacity",
        0x2E | 0xAE | 0x8E => "write and verify",
        0x35 | 0x91 => "synchronize cache",
        0x41 | 0x93 => "write same",
        0x42 => "unmap",
        0x5E => "persistent reserve in",
        0x5F => "persistent reserve out",
        0x89 => "compare and write",
        0x9E => "service action in",
        0xA0 => "report luns",
        0xA3 => "maintenance in",
        _ => return None,
    })
}

/// Names of the procedures of NFS version 3, by number (RFC 1813).
const NAMES_OF_V3: [&str; 22] = [
    "null",
    "getattr",
    "setattr",
    "lookup",
    "access",
    "readlink",
    "read",
    "write",
    "create",
    "mkdir",
    "symlink",
    "mknod",
    "remove",
    "rmdir",
    "rename",
    "link",
    "readdir",
    "readdirplus",
    "fsstat",
    "fsinfo",
    "pathconf",
    "commit",
];

/// Names of the operations of NFS version 4, from number 3 (RFC 8881, RFC 7862, RFC 8276).
const NAMES_OF_V4: [&str; 73] = [
    "access",
    "close",
    "commit",
    "create",
    "delegpurge",
    "delegreturn",
    "getattr",
    "getfh",
    "link",
    "lock",
    "lockt",
    "locku",
    "lookup",
    "lookupp",
    "nverify",
    "open",
    "openattr",
    "open_confirm",
    "open_downgrade",
    "putfh",
    "putpubfh",
    "putrootfh",
    "read",
    "readdir",
    "readlink",
    "remove",
    "rename",
    "renew",
    "restorefh",
    "savefh",
    "secinfo",
    "setattr",
    "setclientid",
    "setclientid_confirm",
    "verify",
    "write",
    "release_lockowner",
    "backchannel_ctl",
    "bind_conn_to_session",
    "exchange_id",
    "create_session",
    "destroy_session",
    "free_stateid",
    "get_dir_delegation",
    "getdeviceinfo",
    "getdevicelist",
    "layoutcommit",
    "layoutget",
    "layoutreturn",
    "secinfo_no_name",
    "sequence",
    "set_ssv",
    "test_stateid",
    "want_delegation",
    "destroy_clientid",
    "reclaim_complete",
    "allocate",
    "copy",
    "copy_notify",
    "deallocate",
    "io_advise",
    "layouterror",
    "layoutstats",
    "offload_cancel",
    "offload_status",
    "read_plus",
    "seek",
    "write_same",
    "clone",
    "getxattr",
    "setxattr",
    "listxattrs",
    "removexattr",
];

fn name_of_v3(procedure: u32) -> Option<&'static str> {
    NAMES_OF_V3.get(usize::try_from(procedure).ok()?).copied()
}

fn name_of_v4(operation: u32) -> Option<&'static str> {
    NAMES_OF_V4.get(usize::try_from(operation).ok()?.checked_sub(3)?).copied()
}
