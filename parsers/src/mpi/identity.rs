//! Whose message it is, and which MPI operation it is part of.

/// Sender, communicator and tag of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
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
    /// The MPI operation that the message is part of.
    ///
    /// Open MPI's collectives name themselves by negative tags (`coll_tags.h`, the same in 2.0 to 4.1; 5.0 keeps the ones of the
    /// blocking collectives and lets the nonblocking ones start at -33). Releases without `MPI_Reduce_scatter_block` of its own (to 1.6)
    /// count scan, scatter and scatterv from -23 on, and are read wrongly here. MPICH and MVAPICH2 tell collectives by the
    /// context; their tags, small and positive, name the blocking ones (`mpir_tags.h`).
    #[must_use]
    pub const fn operation(&self) -> Operation {
        if !self.collective {
            return Operation::PointToPoint;
        }
        match self.tag {
            -10 => Operation::Allgather,
            -11 => Operation::Allgatherv,
            -12 => Operation::Allreduce,
            -13 => Operation::Alltoall,
            -14 => Operation::Alltoallv,
            -15 => Operation::Alltoallw,
            -16 => Operation::Barrier,
            -17 => Operation::Bcast,
            -18 => Operation::Exscan,
            -19 => Operation::Gather,
            -20 => Operation::Gatherv,
            -21 => Operation::Reduce,
            -22 => Operation::ReduceScatter,
            -23 => Operation::ReduceScatterBlock,
            -24 => Operation::Scan,
            -25 => Operation::Scatter,
            -26 => Operation::Scatterv,
            NONBLOCKING_LAST..=NONBLOCKING_FIRST => Operation::Nonblocking,
            1 => Operation::Barrier,
            2 => Operation::Bcast,
            3 => Operation::Gather,
            4 => Operation::Gatherv,
            5 => Operation::Scatter,
            6 => Operation::Scatterv,
            7 => Operation::Allgather,
            8 => Operation::Allgatherv,
            9 => Operation::Alltoall,
            10 => Operation::Alltoallv,
            11..=13 => Operation::Reduce,
            14..=16 => Operation::Allreduce,
            17..=19 => Operation::ReduceScatter,
            20..=22 => Operation::Scan,
            24 => Operation::Exscan,
            25 => Operation::Alltoallw,
            28 => Operation::ReduceScatterBlock,
            MPICH_NONBLOCKING.. => Operation::Nonblocking,
            _ => Operation::Collective,
        }
    }
}

/// First tag of MPICH's nonblocking collectives (`MPIR_FIRST_NBC_TAG`).
const MPICH_NONBLOCKING: i32 = 287;

/// Tag of the first nonblocking collective on a communicator; each further one counts down (`MCA_COLL_BASE_TAG_NONBLOCKING_BASE`).
const NONBLOCKING_FIRST: i32 = -27;

/// Tag at which they start again (`MCA_COLL_BASE_TAG_NONBLOCKING_END`); hcoll has those below.
const NONBLOCKING_LAST: i32 = -(i32::MAX / 2) + 1;

/// An MPI operation that sends messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[repr(u8)]
pub enum Operation {
    /// Any send that is not part of a collective.
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
    /// A nonblocking collective (`MPI_Iallreduce` ...); which one is not told. Open MPI also creates communicators by these.
    Nonblocking,
    /// A collective; which one is not told.
    Collective,
}

impl Operation {
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

    /// The name used in outputs: MPI's, in lower case and without `MPI_`.
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
        // wire-formats 2.1.4.
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
            assert_eq!(identity(-tag, false).operation(), Operation::PointToPoint);
        }
        for tag in [-27, -28, -29, -1000, -0x3FFF_FFFE] {
            assert_eq!(identity(tag, true).operation(), Operation::Nonblocking, "{tag}");
        }
        for tag in [-1, -9, 0, 23, 30, 286, i32::MIN, -0x3FFF_FFFF] {
            assert_eq!(identity(tag, true).operation(), Operation::Collective, "{tag}");
        }
        // mpir_tags.h; 1, 2 and 14 are in the recorded runs of MPICH.
        let mpich = [(1, "barrier"), (2, "bcast"), (9, "alltoall"), (14, "allreduce"), (28, "reduce_scatter_block")];
        for (tag, name) in mpich.into_iter().chain([(287, "nonblocking"), (i32::MAX, "nonblocking")]) {
            assert_eq!(identity(tag, true).operation().name(), name);
        }
        assert_eq!(identity(7, false).operation(), Operation::PointToPoint);
    }

    #[test]
    fn operations_are_in_the_order_of_their_discriminants() {
        assert!(Operation::ALL.iter().enumerate().all(|(at, &operation)| operation as usize == at));
        let names = Operation::ALL.map(Operation::name);
        assert!(names.iter().all(|name| names.iter().filter(|other| other == &name).count() == 1));
    }
}
