//! The sends and receives of a rank in an operation, as the sources of the libraries define them.
//! Written rank by rank, independently of the schedules.

use super::simulator::Action::{self, Receive, Send};
use ibscope_parsers::mpi::MpiOperation;

/// The actions of one rank.
pub(super) type Program = Vec<Action>;

/// A send and a receive at once.
fn exchange(program: &mut Program, dst: u32, bytes: u64, src: u32, operation: MpiOperation) {
    program.extend([Send(dst, bytes, operation), Receive(src)]);
}

const fn power_below(n: u32) -> u32 {
    1 << n.ilog2()
}

/// `ompi_coll_base_allreduce_intra_recursivedoubling`.
pub(super) fn allreduce_doubling(rank: u32, n: u32, bytes: u64) -> Program {
    const OP: MpiOperation = MpiOperation::Allreduce;
    let mut program = Vec::new();
    let adjusted = power_below(n);
    let extra = n - adjusted;
    let new_rank = if rank < 2 * extra {
        if rank.is_multiple_of(2) {
            program.push(Send(rank + 1, bytes, OP));
            None
        } else {
            program.push(Receive(rank - 1));
            Some(rank >> 1)
        }
    } else {
        Some(rank - extra)
    };
    if let Some(new_rank) = new_rank {
        let mut distance = 1;
        while distance < adjusted {
            let new_remote = new_rank ^ distance;
            let remote = if new_remote < extra { new_remote * 2 + 1 } else { new_remote + extra };
            exchange(&mut program, remote, bytes, remote, OP);
            distance <<= 1;
        }
    }
    if rank < 2 * extra {
        program.push(if rank.is_multiple_of(2) { Receive(rank + 1) } else { Send(rank - 1, bytes, OP) });
    }
    program
}

/// Length of a block of a vector of `elements` of 8 bytes (`COLL_BASE_COMPUTE_BLOCKCOUNT`).
fn block_bytes(elements: u64, n: u32, block: u32) -> u64 {
    8 * (elements / u64::from(n) + u64::from(u64::from(block) < elements % u64::from(n)))
}

/// `ompi_coll_base_allreduce_intra_ring`; with `second`, `MPIR_Allreduce_intra_ring`, whose second
/// part has the tag of an Allgatherv.
pub(super) fn allreduce_ring(rank: u32, n: u32, elements: u64, second: MpiOperation) -> Program {
    let mut program = Vec::new();
    let (right, left) = ((rank + 1) % n, (rank + n - 1) % n);
    for k in 0..n - 1 {
        let bytes = block_bytes(elements, n, (rank + n - k) % n);
        exchange(&mut program, right, bytes, left, MpiOperation::Allreduce);
    }
    for k in 0..n - 1 {
        let bytes = block_bytes(elements, n, (rank + 1 + n - k) % n);
        exchange(&mut program, right, bytes, left, second);
    }
    program
}

/// `ompi_coll_base_allreduce_intra_ring_segmented`, with blocks of equal length.
pub(super) fn allreduce_segmented_ring(rank: u32, n: u32, block: u64, segments: u64) -> Program {
    let mut program = Vec::new();
    let (right, left) = ((rank + 1) % n, (rank + n - 1) % n);
    for _ in 0..segments {
        for _ in 0..n - 1 {
            exchange(&mut program, right, block / segments, left, MpiOperation::Allreduce);
        }
    }
    for _ in 0..n - 1 {
        exchange(&mut program, right, block, left, MpiOperation::Allreduce);
    }
    program
}

/// `MPIR_Allreduce_intra_reduce_scatter_allgather`, of elements of 8 bytes.
pub(super) fn allreduce_rabenseifner_mpich(rank: u32, n: u32, elements: u64) -> Program {
    const OP: MpiOperation = MpiOperation::Allreduce;
    let mut program = Vec::new();
    let power = power_below(n);
    let extra = n - power;
    let new_rank = if rank < 2 * extra {
        if rank.is_multiple_of(2) {
            program.push(Send(rank + 1, 8 * elements, OP));
            None
        } else {
            program.push(Receive(rank - 1));
            Some(rank / 2)
        }
    } else {
        Some(rank - extra)
    };
    if let Some(new_rank) = new_rank {
        let count = |from: u32, to: u32| (from..to).map(|block| block_bytes(elements, power, block)).sum::<u64>();
        let remote = |new: u32| if new < extra { new * 2 + 1 } else { new + extra };
        let (mut send, mut receive, mut last, mut mask) = (0, 0, power, 1);
        while mask < power {
            let new_dst = new_rank ^ mask;
            let half = power / (mask * 2);
            let bytes = if new_rank < new_dst {
                send = receive + half;
                count(send, last)
            } else {
                receive = send + half;
                count(send, receive)
            };
            exchange(&mut program, remote(new_dst), bytes, remote(new_dst), OP);
            send = receive;
            mask <<= 1;
            if mask < power {
                last = receive + power / mask;
            }
        }
        mask >>= 1;
        while mask > 0 {
            let new_dst = new_rank ^ mask;
            let half = power / (mask * 2);
            let bytes = if new_rank < new_dst {
                if mask != power / 2 {
                    last += half;
                }
                receive = send + half;
                count(send, receive)
            } else {
                receive = send - half;
                count(send, last)
            };
            exchange(&mut program, remote(new_dst), bytes, remote(new_dst), OP);
            if new_rank > new_dst {
                send = receive;
            }
            mask >>= 1;
        }
    }
    if rank < 2 * extra {
        program.push(if rank.is_multiple_of(2) { Receive(rank + 1) } else { Send(rank - 1, 8 * elements, OP) });
    }
    program
}

/// `MPIR_Bcast_intra_binomial`; with `is_upward`, the tree of `ompi_coll_base_topo_build_bmtree`.
pub(super) fn bcast_binomial(rank: u32, n: u32, root: u32, bytes: &[u64], is_upward: bool) -> Program {
    let relative = (rank + n - root) % n;
    let absolute = |relative: u32| (relative + root) % n;
    let (parent, children): (Option<u32>, Vec<u32>) = if is_upward {
        // The highest bit of the rank leads to the parent; higher ones lead to children.
        let mut mask = 1;
        while mask <= relative {
            mask <<= 1;
        }
        let parent = (relative > 0).then_some(relative ^ (mask >> 1));
        let mut children = Vec::new();
        while mask < n && relative + mask < n {
            children.push(relative + mask);
            mask <<= 1;
        }
        (parent, children)
    } else {
        let mut mask = 1;
        let mut parent = None;
        while mask < n {
            if relative & mask != 0 {
                parent = Some(relative - mask);
                break;
            }
            mask <<= 1;
        }
        mask >>= 1;
        let mut children = Vec::new();
        while mask > 0 {
            if relative + mask < n {
                children.push(relative + mask);
            }
            mask >>= 1;
        }
        (parent, children)
    };
    let mut program = Vec::new();
    for segment in bytes {
        program.extend(parent.map(|parent| Receive(absolute(parent))));
        program.extend(children.iter().map(|&child| Send(absolute(child), *segment, MpiOperation::Bcast)));
    }
    program
}

/// `ompi_coll_base_bcast_intra_pipeline`.
pub(super) fn bcast_pipeline(rank: u32, n: u32, root: u32, bytes: &[u64]) -> Program {
    let relative = (rank + n - root) % n;
    let mut program = Vec::new();
    for segment in bytes {
        if relative > 0 {
            program.push(Receive((rank + n - 1) % n));
        }
        if relative + 1 < n {
            program.push(Send((rank + 1) % n, *segment, MpiOperation::Bcast));
        }
    }
    program
}

/// `ompi_coll_base_bcast_intra_chain` with four chains.
pub(super) fn bcast_chain(rank: u32, n: u32, root: u32, bytes: u64) -> Program {
    let relative = (rank + n - root) % n;
    let chains = 4.min(n - 1);
    // Deal the ranks to chains; the first chains get the remainder.
    let mut chain_of = Vec::new();
    for chain in 0..chains {
        let length = (n - 1) / chains + u32::from(chain < (n - 1) % chains);
        chain_of.extend(std::iter::repeat_n(chain, length as usize));
    }
    let chain = |relative: u32| chain_of.get(relative as usize - 1).copied();
    let mut program = Vec::new();
    if relative == 0 {
        let heads = (1..n).filter(|&other| other == 1 || chain(other) != chain(other - 1));
        program.extend(heads.map(|head| Send((head + root) % n, bytes, MpiOperation::Bcast)));
        return program;
    }
    let is_head = relative == 1 || chain(relative) != chain(relative - 1);
    program.push(Receive(if is_head { root } else { (rank + n - 1) % n }));
    if relative + 1 < n && chain(relative + 1) == chain(relative) {
        program.push(Send((rank + 1) % n, bytes, MpiOperation::Bcast));
    }
    program
}

/// `ompi_coll_base_reduce_intra_basic_linear` and `..._bcast_intra_basic_linear`, alone or together
/// as an Allreduce.
pub(super) fn linear_reduce(rank: u32, n: u32, root: u32, bytes: u64) -> Program {
    if rank == root {
        (0..n).filter(|&other| other != root).map(Receive).collect()
    } else {
        vec![Send(root, bytes, MpiOperation::Reduce)]
    }
}

pub(super) fn linear_bcast(rank: u32, n: u32, root: u32, bytes: u64) -> Program {
    if rank == root {
        (0..n).filter(|&other| other != root).map(|other| Send(other, bytes, MpiOperation::Bcast)).collect()
    } else {
        vec![Receive(root)]
    }
}

/// `MPIR_Reduce_intra_binomial`, for a commutative operation.
pub(super) fn reduce_binomial(rank: u32, n: u32, root: u32, bytes: u64) -> Program {
    let relative = (rank + n - root) % n;
    let mut program = Vec::new();
    let mut mask = 1;
    while mask < n {
        if mask & relative != 0 {
            program.push(Send(((relative & !mask) + root) % n, bytes, MpiOperation::Reduce));
            break;
        }
        if (relative | mask) < n {
            program.push(Receive(((relative | mask) + root) % n));
        }
        mask <<= 1;
    }
    program
}

/// `ompi_coll_base_barrier_intra_basic_linear`.
pub(super) fn barrier_linear(rank: u32, n: u32) -> Program {
    const OP: MpiOperation = MpiOperation::Barrier;
    if rank > 0 {
        return vec![Send(0, 0, OP), Receive(0)];
    }
    (1..n).map(Receive).chain((1..n).map(|other| Send(other, 0, OP))).collect()
}

/// `ompi_coll_base_barrier_intra_bruck`, `MPIR_Barrier_intra_k_dissemination` with k = 2.
pub(super) fn barrier_dissemination(rank: u32, n: u32) -> Program {
    let mut program = Vec::new();
    let mut distance = 1;
    while distance < n {
        exchange(&mut program, (rank + distance) % n, 0, (rank + n - distance) % n, MpiOperation::Barrier);
        distance <<= 1;
    }
    program
}

/// `ompi_coll_base_barrier_intra_doublering`.
pub(super) fn barrier_double_ring(rank: u32, n: u32) -> Program {
    let (right, left) = ((rank + 1) % n, (rank + n - 1) % n);
    let send = Send(right, 0, MpiOperation::Barrier);
    let round = if rank > 0 { [Receive(left), send] } else { [send, Receive(left)] };
    [round, round].concat()
}

/// `ompi_coll_base_allgather_intra_bruck`.
pub(super) fn allgather_bruck(rank: u32, n: u32, block: u64) -> Program {
    let mut program = Vec::new();
    let mut distance = 1;
    while distance < n {
        let count = if distance <= n / 2 { distance } else { n - distance };
        let (dst, src) = ((rank + n - distance) % n, (rank + distance) % n);
        exchange(&mut program, dst, block * u64::from(count), src, MpiOperation::Allgather);
        distance <<= 1;
    }
    program
}

/// `ompi_coll_base_allgather_intra_ring`.
pub(super) fn allgather_ring(rank: u32, n: u32, block: u64) -> Program {
    let mut program = Vec::new();
    (0..n - 1).for_each(|_| exchange(&mut program, (rank + 1) % n, block, (rank + n - 1) % n, MpiOperation::Allgather));
    program
}

/// `ompi_coll_base_allgather_intra_neighborexchange`, for an even number of ranks.
pub(super) fn allgather_neighbor(rank: u32, n: u32, block: u64) -> Program {
    const OP: MpiOperation = MpiOperation::Allgather;
    let (right, left) = ((rank + 1) % n, (rank + n - 1) % n);
    let neighbors = if rank.is_multiple_of(2) { [right, left] } else { [left, right] };
    let mut program = Vec::new();
    exchange(&mut program, neighbors[0], block, neighbors[0], OP);
    for step in 1..n / 2 {
        let neighbor = neighbors[step as usize % 2];
        exchange(&mut program, neighbor, 2 * block, neighbor, OP);
    }
    program
}

/// `ompi_coll_base_alltoall_intra_pairwise`.
pub(super) fn alltoall_pairwise(rank: u32, n: u32, block: u64) -> Program {
    let mut program = Vec::new();
    for step in 1..n {
        exchange(&mut program, (rank + step) % n, block, (rank + n - step) % n, MpiOperation::Alltoall);
    }
    program
}

/// `ompi_coll_base_alltoall_intra_basic_linear`: posts all receives, then sends to the ranks below
/// first.
pub(super) fn alltoall_linear(rank: u32, n: u32, block: u64) -> Program {
    let others = || (1..n).map(move |step| (rank + n - step) % n);
    others().map(|dst| Send(dst, block, MpiOperation::Alltoall)).chain(others().map(Receive)).collect()
}

/// `ompi_coll_base_alltoall_intra_bruck`.
pub(super) fn alltoall_bruck(rank: u32, n: u32, block: u64) -> Program {
    let mut program = Vec::new();
    let mut distance = 1;
    while distance < n {
        let blocks = (1..n).filter(|position| position & distance == distance).count() as u64;
        let (dst, src) = ((rank + distance) % n, (rank + n - distance) % n);
        exchange(&mut program, dst, blocks * block, src, MpiOperation::Alltoall);
        distance <<= 1;
    }
    program
}

/// `MPIR_Scatter_intra_binomial`.
pub(super) fn scatter_binomial(rank: u32, n: u32, root: u32, block: u64) -> Program {
    let relative = (rank + n - root) % n;
    let mut program = Vec::new();
    let mut mask = 1;
    let mut count = n;
    while mask < n {
        if relative & mask != 0 {
            program.push(Receive((rank + n - mask) % n));
            count = mask.min(n - relative);
            break;
        }
        mask <<= 1;
    }
    mask >>= 1;
    while mask > 0 {
        if relative + mask < n {
            program.push(Send((rank + mask) % n, block * u64::from(count - mask), MpiOperation::Scatter));
            count = mask;
        }
        mask >>= 1;
    }
    program
}

/// `MPIR_Reduce_scatter_block_intra_recursive_halving`.
pub(super) fn reduce_scatter_halving(rank: u32, n: u32, block: u64) -> Program {
    const OP: MpiOperation = MpiOperation::ReduceScatterBlock;
    let mut program = Vec::new();
    let power = power_below(n);
    let extra = n - power;
    let new_rank = if rank < 2 * extra {
        if rank.is_multiple_of(2) {
            program.push(Send(rank + 1, block * u64::from(n), OP));
            None
        } else {
            program.push(Receive(rank - 1));
            Some(rank / 2)
        }
    } else {
        Some(rank - extra)
    };
    if let Some(new_rank) = new_rank {
        let blocks = |from: u32, to: u32| (from..to).map(|new| if new < extra { 2 } else { 1 }).sum::<u64>();
        let (mut send, mut receive, mut last, mut mask) = (0, 0, power, power >> 1);
        while mask > 0 {
            let new_dst = new_rank ^ mask;
            let dst = if new_dst < extra { new_dst * 2 + 1 } else { new_dst + extra };
            let count = if new_rank < new_dst {
                send = receive + mask;
                blocks(send, last)
            } else {
                receive = send + mask;
                blocks(send, receive)
            };
            exchange(&mut program, dst, block * count, dst, OP);
            send = receive;
            last = receive + mask;
            mask >>= 1;
        }
    }
    if rank < 2 * extra {
        program.push(if rank.is_multiple_of(2) { Receive(rank + 1) } else { Send(rank - 1, block, OP) });
    }
    program
}
