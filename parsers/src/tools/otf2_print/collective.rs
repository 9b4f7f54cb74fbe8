//! Collective operations of OTF2.

macro_rules! collectives {
    ($($variant:ident $text:literal $name:literal,)*) => {
        /// A collective operation of OTF2.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Collective {
            $(
                #[doc = concat!("`", $text, "`.")]
                $variant,
            )*
        }

        impl Collective {
            /// All operations.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// Name used in outputs: the MPI name in lower case, without `MPI_`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }

            pub(super) fn parse(text: &str) -> Self {
                match text {
                    $($text => Self::$variant,)*
                    _ => Self::Unknown,
                }
            }
        }
    };
}

collectives! {
    Barrier "BARRIER" "barrier",
    Bcast "BCAST" "bcast",
    Gather "GATHER" "gather",
    Gatherv "GATHERV" "gatherv",
    Scatter "SCATTER" "scatter",
    Scatterv "SCATTERV" "scatterv",
    Allgather "ALLGATHER" "allgather",
    Allgatherv "ALLGATHERV" "allgatherv",
    Alltoall "ALLTOALL" "alltoall",
    Alltoallv "ALLTOALLV" "alltoallv",
    Alltoallw "ALLTOALLW" "alltoallw",
    Allreduce "ALLREDUCE" "allreduce",
    Reduce "REDUCE" "reduce",
    ReduceScatter "REDUCE_SCATTER" "reduce_scatter",
    ReduceScatterBlock "REDUCE_SCATTER_BLOCK" "reduce_scatter_block",
    Scan "SCAN" "scan",
    Exscan "EXSCAN" "exscan",
    CreateHandle "CREATE_HANDLE" "create_handle",
    DestroyHandle "DESTROY_HANDLE" "destroy_handle",
    Allocate "ALLOCATE" "allocate",
    Deallocate "DEALLOCATE" "deallocate",
    CreateHandleAndAllocate "CREATE_HANDLE_AND_ALLOCATE" "create_handle_and_allocate",
    DestroyHandleAndDeallocate "DESTROY_HANDLE_AND_DEALLOCATE" "destroy_handle_and_deallocate",
    Unknown "" "collective",
}

impl Collective {
    /// True for operations that create or free an object; they carry no data of the program.
    #[must_use]
    pub const fn is_handle(self) -> bool {
        matches!(
            self,
            Self::CreateHandle
                | Self::DestroyHandle
                | Self::Allocate
                | Self::Deallocate
                | Self::CreateHandleAndAllocate
                | Self::DestroyHandleAndDeallocate
        )
    }
}
