//! What the 64 bits of a UCX tag mean to the MPI library above it.

/// Sender, communicator and tag of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The sender's rank **within the communicator**.
    pub rank: u32,
    /// Context id of the communicator.
    pub context: u32,
    /// MPI tag; negative ones are the library's own.
    pub tag: i32,
    /// The communicator is `MPI_COMM_WORLD`: the rank is a world rank.
    pub world: bool,
    /// The message belongs to a collective operation.
    pub collective: bool,
}

impl Identity {
    /// Stands where a tag cannot be read: a rank and a context that no job has.
    pub const NOBODY: Self = Self { rank: u32::MAX, context: u32::MAX, tag: 0, world: false, collective: false };
}

/// How an MPI library fills a UCX or libfabric tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum TagLayout {
    /// Open MPI 3.0 and later: tag in bits 63-40 (signed), rank in 39-20, context in 19-0 (`pml_ucx_request.h`).
    OpenMpi,
    /// MPICH `ch4:ucx` 3.3 to 4.2: context in bits 63-48, rank in 47-32, tag in 31-0 (`ucx_types.h`).
    Mpich,
}

impl TagLayout {
    /// All layouts, in the order of their discriminants.
    pub const ALL: [Self; 2] = [Self::OpenMpi, Self::Mpich];

    /// The name used in outputs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::OpenMpi => "Open MPI",
            Self::Mpich => "MPICH",
        }
    }

    /// Takes a tag apart. Open MPI's collectives have negative tags; MPICH's an odd context id, and
    /// its contexts 0 and 1 are `MPI_COMM_WORLD`, point-to-point and collective (`mpir_contextid.h`).
    #[must_use]
    pub const fn split(self, tag: u64) -> Identity {
        match self {
            Self::OpenMpi => {
                let context = (tag & 0xF_FFFF) as u32;
                // The arithmetic shift of the signed value keeps the sign of the 24-bit tag.
                let mpi_tag = (tag.cast_signed() >> 40) as i32;
                let rank = ((tag >> 20) & 0xF_FFFF) as u32;
                Identity { rank, context, tag: mpi_tag, world: context == 0, collective: mpi_tag < 0 }
            }
            Self::Mpich => {
                let context = (tag >> 48) as u32;
                let rank = ((tag >> 32) & 0xFFFF) as u32;
                let mpi_tag = (tag as u32).cast_signed();
                Identity { rank, context, tag: mpi_tag, world: context <= 1, collective: context & 1 == 1 }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_mpi_tags_of_the_recorded_runs() {
        // Rank 1, tag 6 on MPI_COMM_WORLD (wire-formats, recorded): bytes 00 00 10 00 00 06 00 00 after the message id.
        let id = TagLayout::OpenMpi.split(u64::from_le_bytes([0, 0, 0x10, 0, 0, 6, 0, 0]));
        assert_eq!(id, Identity { rank: 1, context: 0, tag: 6, world: true, collective: false });
        // Barrier is tag -16, written 0xFFFFF0.
        let id = TagLayout::OpenMpi.split(0xFF_FFF0 << 40 | 7 << 20 | 3);
        assert_eq!(id, Identity { rank: 7, context: 3, tag: -16, world: false, collective: true });
    }

    #[test]
    fn mpich_tags_of_the_recorded_runs() {
        // Tag 13, rank 3, context 0: `0d 00 00 00 03 00 00 00`.
        let id = TagLayout::Mpich.split(u64::from_le_bytes([0x0d, 0, 0, 0, 3, 0, 0, 0]));
        assert_eq!(id, Identity { rank: 3, context: 0, tag: 13, world: true, collective: false });
        let id = TagLayout::Mpich.split(1 << 48 | 2 << 32 | 5);
        assert_eq!(id, Identity { rank: 2, context: 1, tag: 5, world: true, collective: true });
        assert!(!TagLayout::Mpich.split(4 << 48).world, "node leaders have ranks of their own");
    }
}
