//! The algorithms by which Open MPI and MPICH implement each collective operation.

use super::exchanges::{self, Distances, Fold};
use super::schedule::Schedule;
use super::trees::{self, TreeLoad, TreeShape};
use ibscope_parsers::mpi::MpiOperation;

/// Relation between the lengths of the messages of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockSizes {
    /// All blocks have the same length.
    Equal,
    /// Each block has a length of its own.
    Varying,
}

/// A way to implement an operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Algorithm {
    /// Name in outputs.
    pub name: &'static str,
    /// The operation.
    pub operation: MpiOperation,
    /// The tag of the messages.
    pub tag: MpiOperation,
    /// The tag of the second part, if the algorithm calls another operation.
    pub second_tag: Option<MpiOperation>,
    /// Lengths of the blocks.
    pub sizes: BlockSizes,
    /// True if the algorithm may send the vector in several segments.
    pub has_segments: bool,
    /// Builds the messages; `None` if the algorithm does not support this number of ranks or root.
    pub build: fn(ranks: u32, root: u32) -> Option<Schedule>,
    /// True if the operation has a root.
    pub is_rooted: bool,
}

type Build = fn(u32, u32) -> Option<Schedule>;

impl Algorithm {
    const fn new(operation: MpiOperation, name: &'static str, build: Build) -> Self {
        Self {
            name,
            operation,
            tag: operation,
            second_tag: None,
            sizes: BlockSizes::Varying,
            has_segments: false,
            build,
            is_rooted: false,
        }
    }

    /// True for a barrier whose messages have the tag of another operation.
    pub(super) fn is_barrier_with_another_tag(&self) -> bool {
        self.operation == MpiOperation::Barrier && self.tag != MpiOperation::Barrier
    }

    const fn equal(self) -> Self {
        Self { sizes: BlockSizes::Equal, ..self }
    }

    const fn rooted(self) -> Self {
        Self { is_rooted: true, ..self }
    }

    const fn segmented(self) -> Self {
        Self { has_segments: true, ..self }
    }

    const fn tagged(self, tag: MpiOperation) -> Self {
        Self { tag, ..self }
    }

    const fn tags(self, tag: MpiOperation, second_tag: MpiOperation) -> Self {
        Self { tag, second_tag: Some(second_tag), ..self }
    }
}

const fn bcast(name: &'static str, build: Build) -> Algorithm {
    Algorithm::new(MpiOperation::Bcast, name, build).rooted()
}

const fn reduce(name: &'static str, build: Build) -> Algorithm {
    Algorithm::new(MpiOperation::Reduce, name, build).rooted()
}

macro_rules! tree {
    (down $shape:ident $load:ident) => {
        |n, root| Some(trees::downward(TreeShape::$shape, TreeLoad::$load, n, root))
    };
    (up $shape:ident $load:ident) => {
        |n, root| Some(trees::upward(TreeShape::$shape, TreeLoad::$load, n, root))
    };
}

/// A vector up one tree, and the result down another.
fn up_and_down(up: TreeShape, down: TreeShape, n: u32) -> Schedule {
    let result = trees::downward(down, TreeLoad::Vector, n, 0);
    trees::upward(up, TreeLoad::Vector, n, 0).then(result, false)
}

/// A vector up and down binomial trees (Open MPI's libnbc).
fn tree_allreduce(n: u32) -> Schedule {
    up_and_down(TreeShape::BinomialDownward, TreeShape::BinomialUpward, n)
}

/// Signals up and down a tree.
fn tree_barrier(shape: TreeShape, n: u32) -> Schedule {
    let mut schedule = up_and_down(shape, shape, n);
    schedule.blocks = 0;
    for transfer in &mut schedule.transfers {
        transfer.blocks.count = 0;
    }
    schedule
}

/// An Allreduce whose first part sends each block in several segments (Open MPI's segmented ring).
/// The blocks of the schedule are these segments.
pub(super) fn segmented_ring(n: u32, segments: u32) -> Schedule {
    let mut schedule = Schedule::new(n * segments);
    for segment in 0..segments {
        for transfer in exchanges::ring(n).transfers {
            let step = segment * (n - 1) + transfer.step;
            schedule.send(step, (transfer.src, transfer.dst), transfer.blocks.first * segments + segment, 1);
        }
    }
    let step = schedule.next_step();
    // After the first part, rank `r` has the result of block `r + 1`.
    for transfer in exchanges::ring_from(n, 1).transfers {
        let first = transfer.blocks.first * segments;
        schedule.send(step + transfer.step, (transfer.src, transfer.dst), first, segments);
    }
    schedule
}

/// Allgather by recursive doubling in which the ranks beyond a power of two fold into their
/// neighbors. `None` for a power of two, which needs no fold.
fn folded_doubling_allgather(n: u32) -> Option<Schedule> {
    (!n.is_power_of_two()).then(|| exchanges::recursive_exchange_allgather(n, Distances::Rising))
}

/// Allgather by recursive exchange with falling distances. `None` for two and three ranks, for which
/// it sends the messages of recursive doubling.
fn falling_allgather(n: u32) -> Option<Schedule> {
    (n > 3).then(|| exchanges::recursive_exchange_allgather(n, Distances::Falling))
}

/// Broadcast by scatter and Allgather (virtual ranks: the root is 0).
fn scatter_allgather(n: u32, root: u32, allgather: Option<Schedule>) -> Option<Schedule> {
    let scatter = trees::downward(TreeShape::BinomialDownward, TreeLoad::Subtree, n, root);
    let mut gathered = allgather?;
    for transfer in &mut gathered.transfers {
        transfer.src = (transfer.src + root) % n;
        transfer.dst = (transfer.dst + root) % n;
    }
    Some(scatter.then(gathered, false))
}

/// All algorithms. Where two of them send the same messages, both names are reported.
pub(super) const ALGORITHMS: &[Algorithm] = &[
    // Barrier.
    Algorithm::new(MpiOperation::Barrier, "linear", |n, _| Some(tree_barrier(TreeShape::Star, n))),
    Algorithm::new(MpiOperation::Barrier, "dissemination", |n, _| Some(exchanges::dissemination(n))),
    Algorithm::new(MpiOperation::Barrier, "recursive_doubling", |n, _| Some(exchanges::barrier_recursive_doubling(n))),
    Algorithm::new(MpiOperation::Barrier, "recursive_doubling", |n, _| Some(exchanges::recursive_doubling(n, 0))),
    Algorithm::new(MpiOperation::Barrier, "double_ring", |n, _| Some(exchanges::double_ring(n))),
    // MPICH's recursive exchange is an Allreduce without data, for which programs have no use.
    Algorithm::new(MpiOperation::Barrier, "recursive_doubling", |n, _| Some(exchanges::recursive_doubling(n, 0)))
        .tagged(MpiOperation::Allreduce),
    Algorithm::new(MpiOperation::Barrier, "tree", |n, _| Some(tree_barrier(TreeShape::BinomialDownward, n))),
    // Broadcast.
    bcast("linear", tree!(down Star Vector)),
    bcast("binomial", tree!(down BinomialUpward Vector)).segmented(),
    bcast("binomial", tree!(down BinomialDownward Vector)).segmented(),
    bcast("chain", tree!(down Chain Vector)).segmented(),
    bcast("pipeline", tree!(down Pipeline Vector)).segmented(),
    bcast("binary", tree!(down Binary Vector)).segmented(),
    bcast("knomial", tree!(down Knomial Vector)).segmented(),
    bcast("scatter_allgather", |n, root| scatter_allgather(n, root, exchanges::doubling_allgather(n))),
    bcast("scatter_ring_allgather", |n, root| scatter_allgather(n, root, Some(exchanges::ring(n)))),
    // Reduce.
    reduce("linear", tree!(up Star Vector)),
    reduce("binomial", tree!(up BinomialUpward Vector)).segmented(),
    reduce("binomial", tree!(up BinomialDownward Vector)).segmented(),
    reduce("chain", tree!(up Chain Vector)).segmented(),
    reduce("pipeline", tree!(up Pipeline Vector)).segmented(),
    reduce("binary", tree!(up Binary Vector)).segmented(),
    reduce("knomial", tree!(up Knomial Vector)).segmented(),
    reduce("in_order_binary", |n, root| Some(trees::in_order_binary_reduce(n, root))),
    reduce("rabenseifner", |n, root| Some(exchanges::rabenseifner_reduce(n, root, Fold::Whole))),
    reduce("rabenseifner", |n, root| Some(exchanges::rabenseifner_reduce(n, root, Fold::Halves))),
    // Allreduce.
    Algorithm::new(MpiOperation::Allreduce, "recursive_doubling", |n, _| Some(exchanges::recursive_doubling(n, 1))),
    Algorithm::new(MpiOperation::Allreduce, "ring", |n, _| Some(exchanges::ring_allreduce(n, false))),
    Algorithm::new(MpiOperation::Allreduce, "ring", |n, _| Some(exchanges::ring_allreduce(n, true)))
        .tags(MpiOperation::Allreduce, MpiOperation::Allgatherv),
    Algorithm::new(MpiOperation::Allreduce, "rabenseifner", |n, _| {
        Some(exchanges::rabenseifner_allreduce(n, Fold::Whole))
    }),
    Algorithm::new(MpiOperation::Allreduce, "rabenseifner", |n, _| {
        Some(exchanges::rabenseifner_allreduce(n, Fold::Halves))
    }),
    Algorithm::new(MpiOperation::Allreduce, "tree", |n, _| Some(tree_allreduce(n))),
    // Allgather.
    Algorithm::new(MpiOperation::Allgather, "recursive_doubling", |n, _| exchanges::doubling_allgather(n)).equal(),
    Algorithm::new(MpiOperation::Allgather, "recursive_doubling", |n, _| folded_doubling_allgather(n)).equal(),
    Algorithm::new(MpiOperation::Allgather, "recursive_exchange", |n, _| falling_allgather(n)).equal(),
    Algorithm::new(MpiOperation::Allgather, "bruck", |n, _| Some(exchanges::bruck_allgather(n))).equal(),
    Algorithm::new(MpiOperation::Allgather, "ring", |n, _| Some(exchanges::ring(n))).equal(),
    Algorithm::new(MpiOperation::Allgather, "neighbor_exchange", |n, _| exchanges::neighbor_exchange(n)).equal(),
    Algorithm::new(MpiOperation::Allgather, "linear", |n, _| Some(exchanges::linear_allgather(n))).equal(),
    Algorithm::new(MpiOperation::Allgatherv, "recursive_doubling", |n, _| exchanges::doubling_allgather(n)),
    Algorithm::new(MpiOperation::Allgatherv, "recursive_doubling", |n, _| folded_doubling_allgather(n)),
    Algorithm::new(MpiOperation::Allgatherv, "recursive_exchange", |n, _| falling_allgather(n)),
    Algorithm::new(MpiOperation::Allgatherv, "bruck", |n, _| Some(exchanges::bruck_allgather(n))),
    Algorithm::new(MpiOperation::Allgatherv, "ring", |n, _| Some(exchanges::ring(n))),
    Algorithm::new(MpiOperation::Allgatherv, "neighbor_exchange", |n, _| exchanges::neighbor_exchange(n)),
    Algorithm::new(MpiOperation::Allgatherv, "linear", |n, _| Some(exchanges::linear_allgather(n))),
    // Alltoall.
    Algorithm::new(MpiOperation::Alltoall, "linear", |n, _| Some(exchanges::linear_alltoall(n))).equal(),
    Algorithm::new(MpiOperation::Alltoall, "pairwise", |n, _| Some(exchanges::pairwise(n))).equal(),
    Algorithm::new(MpiOperation::Alltoall, "pairwise", |n, _| exchanges::pairwise_xor(n)).equal(),
    Algorithm::new(MpiOperation::Alltoall, "bruck", |n, _| Some(exchanges::bruck_alltoall(n))).equal(),
    Algorithm::new(MpiOperation::Alltoallv, "linear", |n, _| Some(exchanges::linear_alltoall(n))),
    Algorithm::new(MpiOperation::Alltoallv, "pairwise", |n, _| Some(exchanges::pairwise(n))),
    Algorithm::new(MpiOperation::Alltoallw, "linear", |n, _| Some(exchanges::linear_alltoall(n))),
    Algorithm::new(MpiOperation::Alltoallw, "pairwise", |n, _| Some(exchanges::pairwise(n))),
    // Gather and scatter.
    Algorithm::new(MpiOperation::Gather, "linear", tree!(up Star Subtree)).equal().rooted(),
    Algorithm::new(MpiOperation::Gather, "linear_sync", |n, root| Some(exchanges::linear_sync_gather(n, root)))
        .rooted(),
    Algorithm::new(MpiOperation::Gather, "binomial", tree!(up BinomialDownward Subtree)).equal().rooted(),
    Algorithm::new(MpiOperation::Gatherv, "linear", tree!(up Star Subtree)).rooted(),
    Algorithm::new(MpiOperation::Scatter, "linear", tree!(down Star Subtree)).equal().rooted(),
    Algorithm::new(MpiOperation::Scatter, "binomial", tree!(down BinomialDownward Subtree)).equal().rooted(),
    Algorithm::new(MpiOperation::Scatterv, "linear", tree!(down Star Subtree)).rooted(),
    // Reduce-scatter.
    Algorithm::new(MpiOperation::ReduceScatterBlock, "recursive_halving", |n, _| {
        exchanges::halving_reduce_scatter(n, Distances::Falling)
    })
    .equal(),
    Algorithm::new(MpiOperation::ReduceScatterBlock, "butterfly", |n, _| {
        exchanges::halving_reduce_scatter(n, Distances::Rising)
    })
    .equal(),
    Algorithm::new(MpiOperation::ReduceScatterBlock, "pairwise", |n, _| Some(exchanges::pairwise(n))).equal(),
    Algorithm::new(MpiOperation::ReduceScatter, "recursive_halving", |n, _| {
        exchanges::halving_reduce_scatter(n, Distances::Falling)
    }),
    Algorithm::new(MpiOperation::ReduceScatter, "ring", |n, _| Some(exchanges::ring(n))),
    Algorithm::new(MpiOperation::ReduceScatter, "pairwise", |n, _| Some(exchanges::pairwise(n))),
    // Scan.
    Algorithm::new(MpiOperation::Scan, "linear", |n, _| Some(exchanges::linear_scan(n))),
    Algorithm::new(MpiOperation::Scan, "recursive_doubling", |n, _| Some(exchanges::doubling_scan(n))),
    Algorithm::new(MpiOperation::Exscan, "linear", |n, _| Some(exchanges::linear_scan(n))),
    Algorithm::new(MpiOperation::Exscan, "recursive_doubling", |n, _| Some(exchanges::doubling_scan(n))),
];
