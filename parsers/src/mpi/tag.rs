//! Decodes the 64-bit tag that an MPI library passes to UCX or libfabric.

use super::{Identity, rxm};

/// Layout of the UCX or libfabric tags of an MPI library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[repr(u8)]
pub enum TagLayout {
    /// Open MPI 3.0 and later: tag in bits 63-40 (signed), rank in 39-20, context in 19-0
    /// (`pml_ucx_request.h`).
    OpenMpi,
    /// MPICH `ch4:ucx` 3.3 and later: context in bits 63-48, rank in 47-32, tag in 31-0
    /// (`ucx_types.h`). The top bit of the tag (from 4.3 on) or its top two bits (from 5.0 on) hold
    /// a protocol.
    Mpich,
    /// Open MPI 1.10 of MOFED and 2.x: tag in bits 63-40 (signed), rank in 39-16, context in 15-0.
    /// This layout is tried last, because it also accepts tags of 3.0 on `MPI_COMM_WORLD`, with
    /// ranks 16 times as large.
    OpenMpi2,
}

impl TagLayout {
    /// All layouts, in the order of their discriminants.
    pub const ALL: [Self; 3] = [Self::OpenMpi, Self::Mpich, Self::OpenMpi2];

    /// Name used in outputs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::OpenMpi => "Open MPI",
            Self::Mpich => "MPICH",
            Self::OpenMpi2 => "Open MPI 2",
        }
    }

    /// Decodes a UCX tag.
    ///
    /// Open MPI's collectives have negative tags; MPICH's have an odd context id. MPICH's contexts
    /// 0 and 1 are `MPI_COMM_WORLD`, point-to-point and collective (`mpir_contextid.h`).
    ///
    /// `None` if the tag belongs to no message of the application: MPICH's active messages and
    /// dynamic processes. Bits 31 and 30 mark these from 4.3 and 5.0 on; messages of earlier
    /// releases never set them.
    #[must_use]
    pub const fn split(self, tag: u64) -> Option<Identity> {
        match self {
            Self::OpenMpi => Some(open_mpi(tag, 20)),
            Self::Mpich => {
                if tag & (0b11 << 30) != 0 {
                    return None;
                }
                let context = (tag >> 48) as u32;
                let rank = ((tag >> 32) & 0xFFFF) as u32;
                let mpi_tag = (tag as u32).cast_signed();
                Some(Identity { rank, context, tag: mpi_tag, world: context <= 1, collective: context & 1 == 1 })
            }
            Self::OpenMpi2 => Some(open_mpi(tag, 16)),
        }
    }

    /// Decodes a libfabric tag. Completion data, if present, identify the sender. All releases of
    /// Open MPI share one layout here.
    ///
    /// `None` for invalid ranks and for acknowledgements of synchronous sends, which are no
    /// messages of the application.
    #[must_use]
    pub fn split_ofi(self, tag: u64, cq_data: Option<u64>) -> Option<Identity> {
        match (self, cq_data) {
            (Self::OpenMpi | Self::OpenMpi2, Some(cq_data)) => rxm::identity_open_mpi(tag, cq_data),
            (Self::OpenMpi | Self::OpenMpi2, None) => rxm::identity_open_mpi_12_18_32(tag),
            (Self::Mpich, Some(_)) if rxm::protocol_mpich(tag) & rxm::MPICH_ACKNOWLEDGES != 0 => None,
            (Self::Mpich, Some(cq_data)) => rxm::identity_mpich(tag, cq_data),
            (Self::Mpich, None) => rxm::identity_mpich_16_24_20(tag),
        }
    }
}

/// Tag in bits 63 to 40, context in the low `context_bits`, rank between them.
const fn open_mpi(tag: u64, context_bits: u32) -> Identity {
    let context = (tag & ((1 << context_bits) - 1)) as u32;
    // The arithmetic shift of the signed value keeps the sign of the 24-bit tag.
    let mpi_tag = (tag.cast_signed() >> 40) as i32;
    let rank = ((tag & 0xFF_FFFF_FFFF) >> context_bits) as u32;
    Identity { rank, context, tag: mpi_tag, world: context == 0, collective: mpi_tag < 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_mpi_tags_of_the_recorded_runs() {
        // Recorded: rank 1, tag 6 on MPI_COMM_WORLD, bytes 00 00 10 00 00 06 00 00 after the
        // message id.
        let id = TagLayout::OpenMpi.split(u64::from_le_bytes([0, 0, 0x10, 0, 0, 6, 0, 0]));
        assert_eq!(id, Some(Identity { rank: 1, context: 0, tag: 6, world: true, collective: false }));
        // Barrier has tag -16, encoded as 0xFFFFF0.
        let id = TagLayout::OpenMpi.split(0xFF_FFF0 << 40 | 7 << 20 | 3);
        assert_eq!(id, Some(Identity { rank: 7, context: 3, tag: -16, world: false, collective: true }));
    }

    #[test]
    fn open_mpi_2_has_24_bits_of_rank() {
        let id = TagLayout::OpenMpi2.split(0xFF_FFF0 << 40 | 0x12_3456 << 16 | 0xFFFF);
        assert_eq!(id, Some(Identity { rank: 0x12_3456, context: 0xFFFF, tag: -16, world: false, collective: true }));
        let id = TagLayout::OpenMpi2.split(6 << 40 | 1 << 16);
        assert_eq!(id, Some(Identity { rank: 1, context: 0, tag: 6, world: true, collective: false }));
    }

    #[test]
    fn mpich_tags_of_the_recorded_runs() {
        // Tag 13, rank 3, context 0: `0d 00 00 00 03 00 00 00`.
        let id = TagLayout::Mpich.split(u64::from_le_bytes([0x0d, 0, 0, 0, 3, 0, 0, 0]));
        assert_eq!(id, Some(Identity { rank: 3, context: 0, tag: 13, world: true, collective: false }));
        let id = TagLayout::Mpich.split(1 << 48 | 2 << 32 | 5);
        assert_eq!(id, Some(Identity { rank: 2, context: 1, tag: 5, world: true, collective: true }));
        assert!(!TagLayout::Mpich.split(4 << 48).unwrap().world, "node leaders have ranks of their own");
    }

    #[test]
    fn mpich_protocols_are_no_messages() {
        for protocol in 1..4u64 {
            assert_eq!(TagLayout::Mpich.split(protocol << 30 | 3 << 32 | 0xD), None, "{protocol}");
        }
        assert_eq!(TagLayout::Mpich.split(0x3FFF_FFFF).unwrap().tag, 0x3FFF_FFFF, "the largest tag");
    }

    #[test]
    fn libfabric_tags_of_all_layouts() {
        // Recorded (Open MPI 4.1.4): tag 9, completion data 1.
        let expected = Identity { rank: 1, context: 0, tag: 9, world: true, collective: false };
        assert_eq!(TagLayout::OpenMpi.split_ofi(9, Some(1)), Some(expected));
        assert_eq!(TagLayout::OpenMpi2.split_ofi(9, Some(1)), Some(expected));
        assert_eq!(TagLayout::Mpich.split_ofi(9, Some(1)), Some(expected));
        assert_eq!(TagLayout::OpenMpi.split_ofi(1 << 34 | 9, None), Some(expected));
        assert_eq!(TagLayout::OpenMpi2.split_ofi(1 << 34 | 9, None), Some(expected));
        assert_eq!(TagLayout::Mpich.split_ofi(1 << 20 | 9, None), Some(expected));
        assert_eq!(TagLayout::OpenMpi.split_ofi(2 << 32 | 9, Some(1)), None, "acknowledgement");
        assert_eq!(TagLayout::Mpich.split_ofi(1 << 51 | 9, Some(1)), None, "acknowledgement");
        assert_eq!(TagLayout::Mpich.split_ofi(2 << 51 | 9, Some(1)), Some(expected), "synchronous send");
        assert_eq!(TagLayout::OpenMpi.split_ofi(9, Some(1 << 20)), None, "no such rank");
    }

    #[test]
    fn layouts_are_in_the_order_of_their_discriminants() {
        assert!(TagLayout::ALL.iter().enumerate().all(|(at, &layout)| layout as usize == at));
    }
}
