//! Opcodes of the BTH: service, operation, extension headers, and the classes that the analysis
//! tests for every packet.

use core::fmt;

/// Transport service: the top three bits of the opcode.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Service {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Reliable datagram.
    Rd,
    /// Unreliable datagram.
    Ud,
    /// Congestion notification packets of RoCE.
    Cnp,
    /// Extended reliable connection.
    Xrc,
    /// Manufacturer-specific opcodes.
    Vendor,
}

impl Service {
    /// True for RC, UC and XRC, whose queue pairs are connected: their requests have one ascending
    /// sequence of PSNs per connection.
    #[must_use]
    pub const fn is_connected(self) -> bool {
        matches!(self, Self::Rc | Self::Uc | Self::Xrc)
    }

    /// The name used in messages and outputs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rc => "RC",
            Self::Uc => "UC",
            Self::Rd => "RD",
            Self::Ud => "UD",
            Self::Cnp => "CNP",
            Self::Xrc => "XRC",
            Self::Vendor => "vendor",
        }
    }
}

/// Operation: the low five bits of the opcode, in the services that define them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[expect(missing_docs, reason = "the names are those of the architecture's table")]
pub enum Operation {
    SendFirst,
    SendMiddle,
    SendLast,
    SendLastImmediate,
    SendOnly,
    SendOnlyImmediate,
    RdmaWriteFirst,
    RdmaWriteMiddle,
    RdmaWriteLast,
    RdmaWriteLastImmediate,
    RdmaWriteOnly,
    RdmaWriteOnlyImmediate,
    RdmaReadRequest,
    RdmaReadResponseFirst,
    RdmaReadResponseMiddle,
    RdmaReadResponseLast,
    RdmaReadResponseOnly,
    Acknowledge,
    AtomicAcknowledge,
    CmpSwap,
    FetchAdd,
    SendLastInvalidate,
    SendOnlyInvalidate,
    Flush,
    AtomicWrite,
    CongestionNotification,
}

/// Opcode, byte 0 of the BTH.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Opcode(pub u8);

// Classes of an opcode, one bit each.
const KNOWN: u32 = 1;
const REQUEST: u32 = 1 << 1;
const RESPONSE: u32 = 1 << 2;
const ACK: u32 = 1 << 3;
const FIRST: u32 = 1 << 4;
const MIDDLE: u32 = 1 << 5;
const LAST: u32 = 1 << 6;
const ONLY: u32 = 1 << 7;
const SEND: u32 = 1 << 8;
const WRITE: u32 = 1 << 9;
const READ_REQUEST: u32 = 1 << 10;
const READ_RESPONSE: u32 = 1 << 11;
const ATOMIC: u32 = 1 << 12;
const PAYLOAD: u32 = 1 << 13;
// Extension headers.
const RDETH: u32 = 1 << 14;
const DETH: u32 = 1 << 15;
const XRCETH: u32 = 1 << 16;
const RETH: u32 = 1 << 17;
const ATOMIC_ETH: u32 = 1 << 18;
const AETH: u32 = 1 << 19;
const ATOMIC_ACK: u32 = 1 << 20;
const IMMEDIATE: u32 = 1 << 21;
const INVALIDATE: u32 = 1 << 22;
const FETH: u32 = 1 << 23;
const RESERVED16: u32 = 1 << 24;

/// Length of every extension header in bytes.
const LENGTHS: [(u32, u8); 11] = [
    (RDETH, 4),
    (DETH, 8),
    (XRCETH, 4),
    (RETH, 16),
    (ATOMIC_ETH, 28),
    (AETH, 4),
    (ATOMIC_ACK, 8),
    (IMMEDIATE, 4),
    (INVALIDATE, 4),
    (FETH, 4),
    (RESERVED16, 16),
];

static FLAGS: [u32; 256] = {
    let mut table = [0; 256];
    let mut code = 0;
    while code < 256 {
        table[code] = flags(Opcode(code as u8));
        code += 1;
    }
    table
};

static EXT_BYTES: [u8; 256] = {
    let mut table = [0; 256];
    let mut code = 0;
    while code < 256 {
        let flags = flags(Opcode(code as u8));
        let mut header = 0;
        while header < LENGTHS.len() {
            if flags & LENGTHS[header].0 != 0 {
                table[code] += LENGTHS[header].1;
            }
            header += 1;
        }
        code += 1;
    }
    table
};

/// By opcode, the extension word that flow analysis needs: its offset after the BTH and its bit
/// mask. The word is the source QP of the DETH, `DMALen` of the RETH, or the AETH.
static EXTENSION_WORD: [(u8, u32); 256] = {
    let mut table = [(0, 0); 256];
    let mut code = 0;
    while code < 256 {
        let flags = flags(Opcode(code as u8));
        // Header order: RDETH, DETH, XRCETH, FETH, RETH, AETH.
        let rdeth = if flags & RDETH != 0 { 4 } else { 0 };
        let before_reth = rdeth + if flags & XRCETH != 0 { 4 } else { 0 } + if flags & FETH != 0 { 4 } else { 0 };
        table[code] = if flags & DETH != 0 {
            (rdeth + 4, 0xFF_FFFF)
        } else if flags & RETH != 0 {
            (before_reth + 12, u32::MAX)
        } else if flags & AETH != 0 {
            (rdeth, u32::MAX)
        } else {
            (0, 0)
        };
        code += 1;
    }
    table
};

/// The classes of an opcode. Runs at compile time only.
const fn flags(opcode: Opcode) -> u32 {
    use Operation as O;
    let Some(operation) = opcode.operation() else { return 0 };
    let of_operation = match operation {
        O::SendFirst => REQUEST | SEND | FIRST | PAYLOAD,
        O::SendMiddle => REQUEST | SEND | MIDDLE | PAYLOAD,
        O::SendLast => REQUEST | SEND | LAST | PAYLOAD,
        O::SendLastImmediate => REQUEST | SEND | LAST | PAYLOAD | IMMEDIATE,
        O::SendLastInvalidate => REQUEST | SEND | LAST | PAYLOAD | INVALIDATE,
        O::SendOnly => REQUEST | SEND | ONLY | PAYLOAD,
        O::SendOnlyImmediate => REQUEST | SEND | ONLY | PAYLOAD | IMMEDIATE,
        O::SendOnlyInvalidate => REQUEST | SEND | ONLY | PAYLOAD | INVALIDATE,
        O::RdmaWriteFirst => REQUEST | WRITE | FIRST | PAYLOAD | RETH,
        O::RdmaWriteMiddle => REQUEST | WRITE | MIDDLE | PAYLOAD,
        O::RdmaWriteLast => REQUEST | WRITE | LAST | PAYLOAD,
        O::RdmaWriteLastImmediate => REQUEST | WRITE | LAST | PAYLOAD | IMMEDIATE,
        O::RdmaWriteOnly => REQUEST | WRITE | ONLY | PAYLOAD | RETH,
        O::RdmaWriteOnlyImmediate => REQUEST | WRITE | ONLY | PAYLOAD | RETH | IMMEDIATE,
        O::RdmaReadRequest => REQUEST | READ_REQUEST | RETH,
        O::RdmaReadResponseFirst => RESPONSE | READ_RESPONSE | FIRST | PAYLOAD | AETH,
        O::RdmaReadResponseMiddle => RESPONSE | READ_RESPONSE | MIDDLE | PAYLOAD,
        O::RdmaReadResponseLast => RESPONSE | READ_RESPONSE | LAST | PAYLOAD | AETH,
        O::RdmaReadResponseOnly => RESPONSE | READ_RESPONSE | ONLY | PAYLOAD | AETH,
        O::Acknowledge => ACK | AETH,
        O::AtomicAcknowledge => RESPONSE | AETH | ATOMIC_ACK,
        O::CmpSwap | O::FetchAdd => REQUEST | ATOMIC | ATOMIC_ETH,
        O::Flush => REQUEST | FETH | RETH,
        O::AtomicWrite => REQUEST | ATOMIC | PAYLOAD | RETH,
        O::CongestionNotification => RESERVED16,
    };
    let of_service = match opcode.service() {
        // Reliable datagram: RDETH in every packet, DETH in requests.
        Service::Rd if of_operation & REQUEST != 0 => RDETH | DETH,
        Service::Rd => RDETH,
        Service::Ud => DETH,
        Service::Xrc if of_operation & REQUEST != 0 => XRCETH,
        _ => 0,
    };
    KNOWN | of_operation | of_service
}

macro_rules! classifiers {
    ($($(#[$doc:meta])* $name:ident = $flag:expr;)*) => {
        impl Opcode {
            $($(#[$doc])* #[must_use] #[inline] pub const fn $name(self) -> bool { self.flags() & ($flag) != 0 })*
        }
    };
}

classifiers! {
    /// True for the opcodes that the architecture defines.
    is_known = KNOWN;
    /// True for requests: SEND, RDMA WRITE, READ request, atomics and FLUSH.
    is_request = REQUEST;
    /// True for READ responses and the atomic acknowledge, which return data. A plain ACK is
    /// [`Opcode::is_ack`].
    is_response = RESPONSE;
    /// True for the plain acknowledge, which also carries NAKs.
    is_ack = ACK;
    /// True for the first of several packets of a SEND, RDMA WRITE or READ response.
    is_first = FIRST;
    /// True for a middle packet of a SEND, RDMA WRITE or READ response.
    is_middle = MIDDLE;
    /// True for the last of several packets of a SEND, RDMA WRITE or READ response.
    is_last = LAST;
    /// True for a SEND, RDMA WRITE or READ response of a single packet ("Only" in the
    /// architecture's names).
    is_only = ONLY;
    /// True for every SEND.
    is_send = SEND;
    /// True for every RDMA WRITE, but not for ATOMIC WRITE.
    is_write = WRITE;
    /// True for the READ request.
    is_read_request = READ_REQUEST;
    /// True for every READ response.
    is_read_response = READ_RESPONSE;
    /// True for the requests `CmpSwap`, `FetchAdd` and ATOMIC WRITE.
    is_atomic = ATOMIC;
    /// True if application data may follow the extension headers.
    has_payload = PAYLOAD;
    /// True if the opcode has an RDETH.
    has_rdeth = RDETH;
    /// True if the opcode has a DETH.
    has_deth = DETH;
    /// True if the opcode has an XRCETH.
    has_xrceth = XRCETH;
    /// True if the opcode has a RETH.
    has_reth = RETH;
    /// True if the opcode has an `AtomicETH`.
    has_atomic_eth = ATOMIC_ETH;
    /// True if the opcode has an AETH.
    has_aeth = AETH;
    /// True if the opcode has an `AtomicAckETH`.
    has_atomic_ack = ATOMIC_ACK;
    /// True if the opcode has immediate data.
    has_immediate = IMMEDIATE;
    /// True if the opcode has an IETH.
    has_invalidate = INVALIDATE;
    /// True if the opcode has a FETH.
    has_feth = FETH;
}

macro_rules! names {
    ($service:literal, $operation:expr) => {
        match $operation {
            Operation::SendFirst => concat!($service, "_SEND_FIRST"),
            Operation::SendMiddle => concat!($service, "_SEND_MIDDLE"),
            Operation::SendLast => concat!($service, "_SEND_LAST"),
            Operation::SendLastImmediate => concat!($service, "_SEND_LAST_IMMEDIATE"),
            Operation::SendOnly => concat!($service, "_SEND_ONLY"),
            Operation::SendOnlyImmediate => concat!($service, "_SEND_ONLY_IMMEDIATE"),
            Operation::RdmaWriteFirst => concat!($service, "_RDMA_WRITE_FIRST"),
            Operation::RdmaWriteMiddle => concat!($service, "_RDMA_WRITE_MIDDLE"),
            Operation::RdmaWriteLast => concat!($service, "_RDMA_WRITE_LAST"),
            Operation::RdmaWriteLastImmediate => concat!($service, "_RDMA_WRITE_LAST_IMMEDIATE"),
            Operation::RdmaWriteOnly => concat!($service, "_RDMA_WRITE_ONLY"),
            Operation::RdmaWriteOnlyImmediate => concat!($service, "_RDMA_WRITE_ONLY_IMMEDIATE"),
            Operation::RdmaReadRequest => concat!($service, "_RDMA_READ_REQUEST"),
            Operation::RdmaReadResponseFirst => concat!($service, "_RDMA_READ_RESPONSE_FIRST"),
            Operation::RdmaReadResponseMiddle => concat!($service, "_RDMA_READ_RESPONSE_MIDDLE"),
            Operation::RdmaReadResponseLast => concat!($service, "_RDMA_READ_RESPONSE_LAST"),
            Operation::RdmaReadResponseOnly => concat!($service, "_RDMA_READ_RESPONSE_ONLY"),
            Operation::Acknowledge => concat!($service, "_ACKNOWLEDGE"),
            Operation::AtomicAcknowledge => concat!($service, "_ATOMIC_ACKNOWLEDGE"),
            Operation::CmpSwap => concat!($service, "_CMP_SWAP"),
            Operation::FetchAdd => concat!($service, "_FETCH_ADD"),
            Operation::SendLastInvalidate => concat!($service, "_SEND_LAST_INVALIDATE"),
            Operation::SendOnlyInvalidate => concat!($service, "_SEND_ONLY_INVALIDATE"),
            Operation::Flush => concat!($service, "_FLUSH"),
            Operation::AtomicWrite => concat!($service, "_ATOMIC_WRITE"),
            Operation::CongestionNotification => "CNP",
        }
    };
}

impl Opcode {
    /// True for the last or only packet of a request: its message counts with this packet.
    #[must_use]
    #[inline]
    pub const fn ends_request(self) -> bool {
        self.flags() & (REQUEST | FIRST | MIDDLE) == REQUEST
    }

    /// Congestion notification packet of `RoCEv2`.
    pub const CNP: Self = Self(0x81);

    #[inline]
    pub(crate) const fn flags(self) -> u32 {
        FLAGS[self.0 as usize]
    }

    /// The transport service.
    #[must_use]
    #[inline]
    pub const fn service(self) -> Service {
        match self.0 >> 5 {
            0 => Service::Rc,
            1 => Service::Uc,
            2 => Service::Rd,
            3 => Service::Ud,
            4 => Service::Cnp,
            5 => Service::Xrc,
            _ => Service::Vendor,
        }
    }

    /// The operation; `None` if the service does not define these low five bits.
    #[must_use]
    pub const fn operation(self) -> Option<Operation> {
        use Operation as O;
        let low = self.0 & 0x1F;
        let defined = match self.service() {
            Service::Rc | Service::Xrc => matches!(low, 0x00..=0x14 | 0x16 | 0x17 | 0x1C | 0x1D),
            Service::Uc => matches!(low, 0x00..=0x0B),
            Service::Rd => matches!(low, 0x00..=0x14 | 0x1C | 0x1D),
            Service::Ud => matches!(low, 0x04 | 0x05),
            Service::Cnp if self.0 == Self::CNP.0 => return Some(O::CongestionNotification),
            Service::Cnp | Service::Vendor => false,
        };
        if !defined {
            return None;
        }
        Some(match low {
            0x00 => O::SendFirst,
            0x01 => O::SendMiddle,
            0x02 => O::SendLast,
            0x03 => O::SendLastImmediate,
            0x04 => O::SendOnly,
            0x05 => O::SendOnlyImmediate,
            0x06 => O::RdmaWriteFirst,
            0x07 => O::RdmaWriteMiddle,
            0x08 => O::RdmaWriteLast,
            0x09 => O::RdmaWriteLastImmediate,
            0x0A => O::RdmaWriteOnly,
            0x0B => O::RdmaWriteOnlyImmediate,
            0x0C => O::RdmaReadRequest,
            0x0D => O::RdmaReadResponseFirst,
            0x0E => O::RdmaReadResponseMiddle,
            0x0F => O::RdmaReadResponseLast,
            0x10 => O::RdmaReadResponseOnly,
            0x11 => O::Acknowledge,
            0x12 => O::AtomicAcknowledge,
            0x13 => O::CmpSwap,
            0x14 => O::FetchAdd,
            0x16 => O::SendLastInvalidate,
            0x17 => O::SendOnlyInvalidate,
            0x1C => O::Flush,
            0x1D => O::AtomicWrite,
            _ => return None,
        })
    }

    /// Name such as `RC_SEND_FIRST`; `UNKNOWN` for opcodes that the architecture does not define
    /// (`Display` adds the number).
    #[must_use]
    pub const fn name(self) -> &'static str {
        let Some(operation) = self.operation() else { return "UNKNOWN" };
        match self.service() {
            Service::Rc => names!("RC", operation),
            Service::Uc => names!("UC", operation),
            Service::Rd => names!("RD", operation),
            Service::Ud => names!("UD", operation),
            Service::Xrc => names!("XRC", operation),
            Service::Cnp => "CNP",
            Service::Vendor => "UNKNOWN",
        }
    }

    /// Offset after the BTH and bit mask of the opcode's word in `EXTENSION_WORD`; mask 0 if the
    /// opcode has none.
    #[inline]
    pub(crate) const fn extension_word(self) -> (u8, u32) {
        EXTENSION_WORD[self.0 as usize]
    }

    /// Length in bytes of all extension headers between BTH and payload; 0 for unknown opcodes. The
    /// 16 reserved bytes of a congestion notification count as an extension header.
    #[must_use]
    #[inline]
    pub const fn ext_bytes(self) -> u8 {
        EXT_BYTES[self.0 as usize]
    }
}

impl fmt::Display for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_known() { f.write_str(self.name()) } else { write!(f, "UNKNOWN_{:#04x}", self.0) }
    }
}

impl fmt::Debug for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Opcode({:#04x} {})", self.0, self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use alloc::format;
    use alloc::string::{String, ToString};

    /// Table of the architecture: low five bits, operation, services, extension headers of RC.
    const TABLE: [(u8, &str, &str, &str); 25] = [
        (0x00, "SEND_FIRST", "RC UC RD XRC", ""),
        (0x01, "SEND_MIDDLE", "RC UC RD XRC", ""),
        (0x02, "SEND_LAST", "RC UC RD XRC", ""),
        (0x03, "SEND_LAST_IMMEDIATE", "RC UC RD XRC", "ImmDt"),
        (0x04, "SEND_ONLY", "RC UC RD UD XRC", ""),
        (0x05, "SEND_ONLY_IMMEDIATE", "RC UC RD UD XRC", "ImmDt"),
        (0x06, "RDMA_WRITE_FIRST", "RC UC RD XRC", "RETH"),
        (0x07, "RDMA_WRITE_MIDDLE", "RC UC RD XRC", ""),
        (0x08, "RDMA_WRITE_LAST", "RC UC RD XRC", ""),
        (0x09, "RDMA_WRITE_LAST_IMMEDIATE", "RC UC RD XRC", "ImmDt"),
        (0x0A, "RDMA_WRITE_ONLY", "RC UC RD XRC", "RETH"),
        (0x0B, "RDMA_WRITE_ONLY_IMMEDIATE", "RC UC RD XRC", "RETH ImmDt"),
        (0x0C, "RDMA_READ_REQUEST", "RC RD XRC", "RETH"),
        (0x0D, "RDMA_READ_RESPONSE_FIRST", "RC RD XRC", "AETH"),
        (0x0E, "RDMA_READ_RESPONSE_MIDDLE", "RC RD XRC", ""),
        (0x0F, "RDMA_READ_RESPONSE_LAST", "RC RD XRC", "AETH"),
        (0x10, "RDMA_READ_RESPONSE_ONLY", "RC RD XRC", "AETH"),
        (0x11, "ACKNOWLEDGE", "RC RD XRC", "AETH"),
        (0x12, "ATOMIC_ACKNOWLEDGE", "RC RD XRC", "AETH AtomicAckETH"),
        (0x13, "CMP_SWAP", "RC RD XRC", "AtomicETH"),
        (0x14, "FETCH_ADD", "RC RD XRC", "AtomicETH"),
        (0x16, "SEND_LAST_INVALIDATE", "RC XRC", "IETH"),
        (0x17, "SEND_ONLY_INVALIDATE", "RC XRC", "IETH"),
        (0x1C, "FLUSH", "RC RD XRC", "FETH RETH"),
        (0x1D, "ATOMIC_WRITE", "RC RD XRC", "RETH"),
    ];
    const SERVICES: [(&str, u8, Service); 5] = [
        ("RC", 0x00, Service::Rc),
        ("UC", 0x20, Service::Uc),
        ("RD", 0x40, Service::Rd),
        ("UD", 0x60, Service::Ud),
        ("XRC", 0xA0, Service::Xrc),
    ];
    type Has = fn(Opcode) -> bool;
    const HEADERS: [(&str, u8, Has); 10] = [
        ("RDETH", 4, |opcode| opcode.has_rdeth()),
        ("DETH", 8, |opcode| opcode.has_deth()),
        ("RETH", 16, |opcode| opcode.has_reth()),
        ("AtomicETH", 28, |opcode| opcode.has_atomic_eth()),
        ("XRCETH", 4, |opcode| opcode.has_xrceth()),
        ("ImmDt", 4, |opcode| opcode.has_immediate()),
        ("IETH", 4, |opcode| opcode.has_invalidate()),
        ("AETH", 4, |opcode| opcode.has_aeth()),
        ("AtomicAckETH", 8, |opcode| opcode.has_atomic_ack()),
        ("FETH", 4, |opcode| opcode.has_feth()),
    ];

    fn is_response(operation: &str) -> bool {
        operation.contains("RESPONSE") || operation.ends_with("ACKNOWLEDGE")
    }

    /// Every defined opcode with service, operation and extension headers.
    fn defined() -> impl Iterator<Item = (Opcode, Service, &'static str, String)> {
        TABLE.iter().flat_map(|&(low, operation, services, headers)| {
            SERVICES.iter().filter(move |(name, ..)| services.split(' ').any(|service| service == *name)).map(
                move |&(_, base, service)| {
                    // RD: RDETH always, DETH in requests. UD: DETH. XRC: XRCETH in requests.
                    let before = match service {
                        Service::Rd if is_response(operation) => "RDETH",
                        Service::Rd => "RDETH DETH",
                        Service::Ud => "DETH",
                        Service::Xrc if !is_response(operation) => "XRCETH",
                        _ => "",
                    };
                    (Opcode(base | low), service, operation, format!("{before} {headers}"))
                },
            )
        })
    }

    #[test]
    fn the_keys_of_the_table_are_unique() {
        let mut lows = BTreeSet::new();
        assert!(TABLE.iter().all(|&(low, ..)| low < 0x20 && lows.insert(low)));
        let mut names = BTreeSet::new();
        assert!(TABLE.iter().all(|&(_, operation, ..)| names.insert(operation)));
        // RC 25, UC 12, RD 23, UD 2, XRC 25.
        assert_eq!(defined().count(), 25 + 12 + 23 + 2 + 25);
    }

    #[test]
    fn names_services_and_extension_headers_are_those_of_the_table() {
        for (opcode, service, operation, headers) in defined() {
            let prefix = SERVICES.iter().find(|(_, _, of)| *of == service).unwrap().0;
            assert_eq!(opcode.to_string(), format!("{prefix}_{operation}"));
            assert_eq!(opcode.name(), opcode.to_string());
            assert_eq!(opcode.service(), service, "{opcode}");
            let mut bytes = 0;
            for (header, length, has) in HEADERS {
                let expected = headers.split(' ').any(|name| name == header);
                assert_eq!(has(opcode), expected, "{opcode} {header}");
                bytes += if expected { length } else { 0 };
            }
            assert_eq!(opcode.ext_bytes(), bytes, "{opcode}");
        }
        // Sums by hand: RDETH DETH RETH ImmDt; XRCETH AtomicETH; AETH AtomicAckETH.
        assert_eq!([0x4B, 0xB3, 0x12].map(|code| Opcode(code).ext_bytes()), [4 + 8 + 16 + 4, 4 + 28, 4 + 8]);
    }

    #[test]
    fn classes_follow_from_the_names() {
        for (opcode, _, operation, _) in defined() {
            let ack = operation == "ACKNOWLEDGE";
            let is = |part: &str| operation.contains(part);
            let expected: [(Has, bool); 13] = [
                (Opcode::is_known, true),
                (Opcode::is_request, !is_response(operation)),
                (Opcode::is_response, is_response(operation) && !ack),
                (Opcode::is_ack, ack),
                (Opcode::is_first, is("_FIRST")),
                (Opcode::is_middle, is("_MIDDLE")),
                (Opcode::is_last, is("_LAST")),
                (Opcode::is_only, is("_ONLY")),
                (Opcode::is_send, is("SEND")),
                (Opcode::is_write, is("RDMA_WRITE")),
                (Opcode::is_read_request, is("READ_REQUEST")),
                (Opcode::is_read_response, is("READ_RESPONSE")),
                (Opcode::is_atomic, matches!(operation, "CMP_SWAP" | "FETCH_ADD" | "ATOMIC_WRITE")),
            ];
            for (number, (class, value)) in expected.into_iter().enumerate() {
                assert_eq!(class(opcode), value, "{opcode} class {number}");
            }
            let empty = ["RDMA_READ_REQUEST", "ACKNOWLEDGE", "ATOMIC_ACKNOWLEDGE", "CMP_SWAP", "FETCH_ADD", "FLUSH"];
            assert_eq!(opcode.has_payload(), !empty.contains(&operation), "{opcode}");
            assert_eq!(opcode.is_ack(), opcode.0 & 0x1F == 0x11);
        }
    }

    #[test]
    fn opcodes_outside_the_table_are_unknown() {
        let mut known: BTreeSet<u8> = defined().map(|(opcode, ..)| opcode.0).collect();
        known.insert(0x81);
        for opcode in (0..=0xFF).map(Opcode) {
            assert_eq!(opcode.is_known(), known.contains(&opcode.0), "{opcode}");
            assert_eq!(opcode.operation().is_some(), opcode.is_known());
            if !opcode.is_known() {
                assert_eq!((opcode.flags(), opcode.ext_bytes()), (0, 0));
                assert_eq!(opcode.to_string(), format!("UNKNOWN_0x{:02x}", opcode.0));
            }
        }
        assert_eq!(
            [0x80, 0xC0, 0xFF].map(|code| Opcode(code).service()),
            [Service::Cnp, Service::Vendor, Service::Vendor]
        );
    }

    #[test]
    fn a_congestion_notification_is_neither_request_nor_response() {
        let cnp = Opcode(0x81);
        assert_eq!((cnp.to_string().as_str(), cnp.service(), cnp.ext_bytes()), ("CNP", Service::Cnp, 16));
        assert!(cnp.is_known() && !cnp.is_request() && !cnp.is_response() && !cnp.is_ack() && !cnp.has_payload());
    }
}
