//! Sender of an MPI message, and the MPI operation that the message belongs to.

/// Sender, communicator and tag of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Identity {
    /// Rank of the sender **in the communicator**.
    pub rank: u32,
    /// Context id of the communicator.
    pub context: u32,
    /// MPI tag; libraries use negative tags internally.
    pub tag: i32,
    /// True if the communicator is `MPI_COMM_WORLD`: `rank` is a world rank.
    pub world: bool,
    /// True if the message belongs to a collective operation.
    pub collective: bool,
}

impl Identity {
    /// The MPI operation that the message belongs to.
    ///
    /// Open MPI marks collectives by negative tags (`coll_tags.h`, unchanged from 2.0 to 4.1; 5.0
    /// keeps the tags of blocking collectives and starts nonblocking ones at -33). Releases up to
    /// 1.6 have no `MPI_Reduce_scatter_block`: their scan, scatter and scatterv start at -23 and
    /// are misread here. MPICH and MVAPICH2 mark collectives by the context id; small positive tags
    /// identify the blocking ones (`mpir_tags.h`).
    #[must_use]
    pub const fn operation(&self) -> MpiOperation {
        if !self.collective {
            return MpiOperation::PointToPoint;
        }
        match self.tag {
            -10 => MpiOperation::Allgather,
            -11 => MpiOperation::Allgatherv,
            -12 => MpiOperation::Allreduce,
            -13 => MpiOperation::Alltoall,
            -14 => MpiOperation::Alltoallv,
            -15 => MpiOperation::Alltoallw,
            -16 => MpiOperation::Barrier,
            -17 => MpiOperation::Bcast,
            -18 => MpiOperation::Exscan,
            -19 => MpiOperation::Gather,
            -20 => MpiOperation::Gatherv,
            -21 => MpiOperation::Reduce,
            -22 => MpiOperation::ReduceScatter,
            -23 => MpiOperation::ReduceScatterBlock,
            -24 => MpiOperation::Scan,
            -25 => MpiOperation::Scatter,
            -26 => MpiOperation::Scatterv,
            NONBLOCKING_LAST..=NONBLOCKING_FIRST => MpiOperation::Nonblocking,
            1 => MpiOperation::Barrier,
            2 => MpiOperation::Bcast,
            3 => MpiOperation::Gather,
            4 => MpiOperation::Gatherv,
            5 => MpiOperation::Scatter,
            6 => MpiOperation::Scatterv,
            7 => MpiOperation::Allgather,
            8 => MpiOperation::Allgatherv,
            9 => MpiOperation::Alltoall,
            10 => MpiOperation::Alltoallv,
            11..=13 => MpiOperation::Reduce,
            14..=16 => MpiOperation::Allreduce,
            17..=19 => MpiOperation::ReduceScatter,
            20..=22 => MpiOperation::Scan,
            24 => MpiOperation::Exscan,
            25 => MpiOperation::Alltoallw,
            28 => MpiOperation::ReduceScatterBlock,
            MPICH_NONBLOCKING.. => MpiOperation::Nonblocking,
            _ => MpiOperation::Collective,
        }
    }
}

/// First tag of MPICH's nonblocking collectives (`MPIR_FIRST_NBC_TAG`).
const MPICH_NONBLOCKING: i32 = 287;

/// Tag of the first nonblocking collective on a communicator; later ones count down
/// (`MCA_COLL_BASE_TAG_NONBLOCKING_BASE`).
const NONBLOCKING_FIRST: i32 = -27;

/// Last tag of nonblocking collectives before the count restarts
/// (`MCA_COLL_BASE_TAG_NONBLOCKING_END`); hcoll uses the tags below.
const NONBLOCKING_LAST: i32 = -(i32::MAX / 2) + 1;

/// An MPI operation that sends messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[repr(u8)]
pub enum MpiOperation {
    /// A send that is not part of a collective.
    PointToPoint,
    /// `MPI_Allgather`.
    Allgather,
    /// `MPI_Allgatherv`.
    Allgatherv,
    /// `MPI_Allreduce`.
    Allreduce,
    /// `MPI_Alltoall`.
    Alltoall,
    /// `MPI_Alltoallv`.
    Alltoallv,
    /// `MPI_Alltoallw`.
    Alltoallw,
    /// `MPI_Barrier`.
    Barrier,
    /// `MPI_Bcast`.
    Bcast,
    /// `MPI_Exscan`.
    Exscan,
    /// `MPI_Gather`.
    Gather,
    /// `MPI_Gatherv`.
    Gatherv,
    /// `MPI_Reduce`.
    Reduce,
    /// `MPI_Reduce_scatter`.
    ReduceScatter,
    /// `MPI_Reduce_scatter_block`.
    ReduceScatterBlock,
    /// `MPI_Scan`.
    Scan,
    /// `MPI_Scatter`.
    Scatter,
    /// `MPI_Scatterv`.
    Scatterv,
    /// A nonblocking collective (`MPI_Iallreduce` ...) of unknown kind. Open MPI also creates
    /// communicators with these tags.
    Nonblocking,
    /// A collective of unknown kind.
    Collective,
}

impl MpiOperation {
    /// All operations, in the order of their discriminants.
    pub const ALL: [Self; 20] = [
        Self::PointToPoint,
        Self::Allgather,
        Self::Allgatherv,
        Self::Allreduce,
        Self::Alltoall,
        Self::Alltoallv,
        Self::Alltoallw,
        Self::Barrier,
        Self::Bcast,
        Self::Exscan,
        Self::Gather,
        Self::Gatherv,
        Self::Reduce,
        Self::ReduceScatter,
        Self::ReduceScatterBlock,
        Self::Scan,
        Self::Scatter,
        Self::Scatterv,
        Self::Nonblocking,
        Self::Collective,
    ];

    /// Name used in outputs: the MPI name in lower case, without `MPI_`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::PointToPoint => "point-to-point",
            Self::Allgather => "allgather",
            Self::Allgatherv => "allgatherv",
            Self::Allreduce => "allreduce",
            Self::Alltoall => "alltoall",
            Self::Alltoallv => "alltoallv",
            Self::Alltoallw => "alltoallw",
            Self::Barrier => "barrier",
            Self::Bcast => "bcast",
            Self::Exscan => "exscan",
            Self::Gather => "gather",
            Self::Gatherv => "gatherv",
            Self::Reduce => "reduce",
            Self::ReduceScatter => "reduce_scatter",
            Self::ReduceScatterBlock => "reduce_scatter_block",
            Self::Scan => "scan",
            Self::Scatter => "scatter",
            Self::Scatterv => "scatterv",
            Self::Nonblocking => "nonblocking",
            Self::Collective => "collective",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_by_tag() {
        let identity = |tag, collective| Identity { rank: 0, context: 0, tag, world: true, collective };
        // Open MPI's `coll_tags.h`.
        let names = [
            "allgather",
            "allgatherv",
            "allreduce",
            "alltoall",
            "alltoallv",
            "alltoallw",
            "barrier",
            "bcast",
            "exscan",
            "gather",
            "gatherv",
            "reduce",
            "reduce_scatter",
            "reduce_scatter_block",
            "scan",
            "scatter",
            "scatterv",
        ];
        for (tag, name) in (10..).zip(names) {
            assert_eq!(identity(-tag, true).operation().name(), name);
            assert_eq!(identity(-tag, false).operation(), MpiOperation::PointToPoint);
        }
        for tag in [-27, -28, -29, -1000, -0x3FFF_FFFE] {
            assert_eq!(identity(tag, true).operation(), MpiOperation::Nonblocking, "{tag}");
        }
        for tag in [-1, -9, 0, 23, 30, 286, i32::MIN, -0x3FFF_FFFF] {
            assert_eq!(identity(tag, true).operation(), MpiOperation::Collective, "{tag}");
        }
        // MPICH's `mpir_tags.h`; 1, 2 and 14 occur in the recorded runs of MPICH.
        let mpich = [(1, "barrier"), (2, "bcast"), (9, "alltoall"), (14, "allreduce"), (28, "reduce_scatter_block")];
        for (tag, name) in mpich.into_iter().chain([(287, "nonblocking"), (i32::MAX, "nonblocking")]) {
            assert_eq!(identity(tag, true).operation().name(), name);
        }
        assert_eq!(identity(7, false).operation(), MpiOperation::PointToPoint);
    }

    #[test]
    fn operations_are_in_the_order_of_their_discriminants() {
        assert!(MpiOperation::ALL.iter().enumerate().all(|(at, &operation)| operation as usize == at));
        let names = MpiOperation::ALL.map(MpiOperation::name);
        assert!(names.iter().all(|name| names.iter().filter(|other| other == &name).count() == 1));
    }
}
