//! Context ids of MPICH: `MPI_COMM_WORLD`, and the communicators between the leaders of the nodes.
//!
//! MPICH splits most collectives on a communicator with several ranks on a node: ranks of a node
//! communicate first, then one leader of each node with the others, and then the ranks of a node
//! again. It derives the context ids of the communicators for this from that of the call
//! (`mpir_contextid.h`, unchanged from 3.0 to 5.0): bit 0 marks collectives; bits 2 and 1 are 1 for
//! the ranks of a node and 2 for the leaders. `MPI_COMM_WORLD` has the context id 0.

/// Highest context id of `MPI_COMM_WORLD` on the wire: 0 for point-to-point messages, 1 for
/// collectives.
pub const MPICH_WORLD_LAST: u32 = 1;

const SUBCOMMUNICATOR: u32 = 0b110;
const LEADERS: u32 = 0b100;

/// The context id of the communicator whose node leaders communicate under `context`, with the same
/// mark of collectives. `None` if `context` is no communicator between leaders.
#[must_use]
pub const fn mpich_leaders_parent(context: u32) -> Option<u32> {
    if context & SUBCOMMUNICATOR == LEADERS { Some(context & !SUBCOMMUNICATOR) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_communicators_of_leaders_have_a_parent() {
        // `MPI_COMM_WORLD` and its communicators: of a node 2 and 3, of leaders 4 and 5.
        for context in [0, 1, 2, 3, 6, 7, 8, 9] {
            assert_eq!(mpich_leaders_parent(context), None, "{context}");
        }
        assert_eq!((mpich_leaders_parent(4), mpich_leaders_parent(5)), (Some(0), Some(1)));
        // The prefix 31 of the first communicators that a program creates.
        assert_eq!(mpich_leaders_parent(31 << 4 | 0b101), Some(31 << 4 | 1));
    }
}
