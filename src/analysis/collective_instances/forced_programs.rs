//! Like `programs`, for algorithms that the libraries rarely choose by themselves.

use super::programs::Program;
use super::simulator::Action::{Receive, Send};
use ibscope_parsers::mpi::MpiOperation;

/// `ompi_coll_base_reduce_intra_in_order_binary` over `ompi_coll_base_topo_build_in_order_bintree`.
pub(super) fn reduce_in_order_binary(rank: u32, n: u32, root: u32, bytes: u64) -> Program {
    const OP: MpiOperation = MpiOperation::Reduce;
    let (mut own, mut size, mut top, mut delta) = (i64::from(rank), i64::from(n), i64::from(n) - 1, 0);
    let mut parent = None;
    let mut children = Vec::new();
    loop {
        let right_size = size >> 1;
        let (mut left, mut right) = (-1, -1);
        if size > 1 {
            left = top - 1;
            if left > 0 {
                right = right_size - 1;
            }
        }
        if own == top {
            children.extend([left, right].into_iter().filter(|child| *child >= 0).map(|child| child + delta));
            break;
        }
        if own > right {
            if own == left {
                parent = Some(top + delta);
            }
            size = size - right_size - 1;
            delta += right_size;
            own -= right_size;
            top = size - 1;
        } else {
            if own == right {
                parent = Some(top + delta);
            }
            size = right_size;
            top = right;
        }
    }
    let mut program: Program = children.into_iter().map(|child| Receive(child as u32)).collect();
    program.extend(parent.map(|parent| Send(parent as u32, bytes, OP)));
    let io_root = n - 1;
    if io_root != root {
        if rank == root {
            program.push(Receive(io_root));
        } else if rank == io_root {
            program.push(Send(root, bytes, OP));
        }
    }
    program
}

/// `ompi_coll_base_reduce_intra_redscat_gather`, or, with `is_mpich`,
/// `MPIR_Reduce_intra_reduce_scatter_gather`. `elements` of 8 bytes are a multiple of the number of
/// ranks that remain.
pub(super) fn reduce_rabenseifner(rank: u32, n: u32, root: u32, elements: u64, is_mpich: bool) -> Program {
    const OP: MpiOperation = MpiOperation::Reduce;
    let steps = n.ilog2();
    let power = 1 << steps;
    let extra = n - power;
    let bytes = 8 * elements;
    let real = |new: u32| if new < extra { new * 2 } else { new + extra };
    let mut program = Vec::new();
    let mut new_rank = Some(rank.wrapping_sub(extra));
    if rank < 2 * extra {
        let is_odd = rank % 2 == 1;
        new_rank = (!is_odd).then_some(rank / 2);
        match (is_odd, is_mpich) {
            (true, true) => program.push(Send(rank - 1, bytes, OP)),
            (false, true) => program.push(Receive(rank + 1)),
            (true, false) => {
                program.extend([Send(rank - 1, bytes / 2, OP), Receive(rank - 1), Send(rank - 1, bytes / 2, OP)]);
            }
            (false, false) => program.extend([Send(rank + 1, bytes / 2, OP), Receive(rank + 1), Receive(rank + 1)]),
        }
    }
    // Both halves of a window are equally long, so only its length matters.
    if let Some(new) = new_rank {
        for step in 0..steps {
            let partner = real(new ^ (1 << step));
            program.extend([Send(partner, bytes >> (step + 1), OP), Receive(partner)]);
        }
    }
    let is_excluded_root = root < 2 * extra && root % 2 == 1;
    let new_root = if is_excluded_root {
        0
    } else if root < 2 * extra {
        root / 2
    } else {
        root - extra
    };
    if is_excluded_root {
        if rank == root {
            program.push(Receive(0));
            new_rank = Some(0);
        } else if new_rank == Some(0) {
            program.push(Send(root, bytes >> steps, OP));
            new_rank = None;
        }
    }
    if let Some(new) = new_rank {
        for step in (0..steps).rev() {
            let new_partner = new ^ (1 << step);
            let partner = if new_partner == 0 && is_excluded_root { root } else { real(new_partner) };
            if new_partner >> step == new_root >> step {
                program.push(Send(partner, bytes >> (step + 1), OP));
                break;
            }
            program.push(Receive(partner));
        }
    }
    program
}

/// `MPIR_Allgather_intra_recexch` with k = 2; `is_halving` is the type with falling distances.
pub(super) fn allgather_recursive_exchange(rank: u32, n: u32, block: u64, is_halving: bool) -> Program {
    const OP: MpiOperation = MpiOperation::Allgather;
    let phases = n.ilog2();
    let extra = n - (1 << phases);
    let limit = 2 * extra;
    let to_step2 = |rank: u32| if rank < limit { rank / 2 } else { rank - extra };
    let to_original = |new: i64| if new < i64::from(extra) { new * 2 + 1 } else { new + i64::from(extra) };
    // `MPII_Recexchalgo_get_count_and_offset`.
    let count = |rank: u32, phase: u32| {
        let first = i64::from(to_step2(rank) >> phase << phase) - 1;
        let last = first + (1 << phase);
        let original = if first >= 0 { to_original(first) } else { first };
        (to_original(last) - original) as u64
    };
    // `MPII_Recexchalgo_reverse_digits_step2`.
    let reversed = |rank: u32| {
        let bits = to_step2(rank);
        let value = (0..phases).map(|bit| (bits >> bit & 1) << (phases - 1 - bit)).sum::<u32>();
        to_original(i64::from(value)) as u32
    };
    if rank < limit && rank.is_multiple_of(2) {
        return vec![Send(rank + 1, block, OP), Receive(rank + 1)];
    }
    let mut program = Vec::new();
    if rank < limit {
        program.push(Receive(rank - 1));
    }
    if is_halving && reversed(rank) != rank {
        program.extend([Send(reversed(rank), count(rank, 0) * block, OP), Receive(reversed(rank))]);
    }
    for phase in 0..phases {
        let bit = if is_halving { phases - 1 - phase } else { phase };
        let neighbor = to_original(i64::from(to_step2(rank) ^ (1 << bit))) as u32;
        let owner = if is_halving { reversed(rank) } else { rank };
        program.extend([Send(neighbor, count(owner, phase) * block, OP), Receive(neighbor)]);
    }
    if rank < limit {
        program.push(Send(rank - 1, u64::from(n) * block, OP));
    }
    program
}

/// `ompi_coll_base_gather_intra_linear_sync`.
pub(super) fn gather_linear_sync(rank: u32, n: u32, root: u32, (first, second): (u64, u64)) -> Program {
    const OP: MpiOperation = MpiOperation::Gather;
    if rank != root {
        return vec![Receive(root), Send(root, first, OP), Send(root, second, OP)];
    }
    let others = || (0..n).filter(move |&other| other != root);
    // The simulator keeps the order of messages, so the root takes the second parts at the end.
    others().flat_map(|other| [Send(other, 0, OP), Receive(other)]).chain(others().map(Receive)).collect()
}

/// `ompi_coll_base_gather_intra_basic_linear`.
pub(super) fn gather_linear(rank: u32, n: u32, root: u32, block: u64) -> Program {
    if rank == root {
        return (0..n).filter(|&other| other != root).map(Receive).collect();
    }
    vec![Send(root, block, MpiOperation::Gather)]
}

/// `MPIR_Barrier_intra_recexch` with k = 2: `MPIR_Allreduce_intra_recexch` without data.
pub(super) fn barrier_recursive_exchange(rank: u32, n: u32) -> Program {
    super::programs::allreduce_doubling(rank, n, 0)
}
