//! A schedule as text in GOAL, the input of LogGOPSim and ATLAHS.
//!
//! Grammar: that of `txt2bin` (`LogGOPSim/txt2bin.re` in github.com/spcl/LogGOPSim), one statement
//! per line. Labels are unique in their rank.

use crate::analysis::rank_schedule::{PeerMessage, RankOperation, RankOperationKind};
use std::fmt::Write as _;
use std::io::{self, Write};

/// Writes a schedule. `operations` are those of rank 0, then those of rank 1, and so on, up to
/// `ranks`.
pub fn write(
    ranks: u32,
    operations: impl Iterator<Item = io::Result<RankOperation>>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut operations = operations.peekable();
    writeln!(out, "num_ranks {ranks}")?;
    for rank in 0..ranks {
        writeln!(out, "\nrank {rank} {{")?;
        while let Some(operation) = operations.next_if(|next| next.as_ref().map_or(true, |next| next.rank == rank)) {
            out.write_all(statements(&operation?)?.as_bytes())?;
        }
        writeln!(out, "}}")?;
    }
    Ok(())
}

/// The operation, and its dependencies. Fails for a collective operation, which GOAL does not have.
fn statements(operation: &RankOperation) -> io::Result<String> {
    let label = operation.number;
    let message = |verb: &str, toward: &str, own: PeerMessage| {
        format!("l{label}: {verb} {}b {toward} {} tag {}\n", own.bytes, own.peer, own.tag)
    };
    let mut text = match operation.kind {
        RankOperationKind::Send(own) => message("send", "to", own),
        RankOperationKind::Receive(own) => message("recv", "from", own),
        RankOperationKind::Compute => format!("l{label}: calc {}\n", operation.duration_ns()),
        RankOperationKind::Collective(_) => {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "GOAL has no collective operations"));
        }
    };
    operation.after_end.iter().for_each(|other| _ = writeln!(text, "l{label} requires l{other}"));
    operation.after_start.iter().for_each(|other| _ = writeln!(text, "l{label} irequires l{other}"));
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_follow_the_grammar() {
        let message = PeerMessage { peer: 1, bytes: 8, tag: 7 };
        let operation = |rank, number, kind, after_end: &[u64], after_start| {
            Ok(RankOperation { rank, number, kind, times_ns: (8, 20), after_end: after_end.to_vec(), after_start })
        };
        let operations = [
            operation(0, 1, RankOperationKind::Send(message), &[], None),
            operation(0, 2, RankOperationKind::Compute, &[1], None),
            operation(2, 1, RankOperationKind::Receive(message), &[], Some(5)),
        ];
        let mut text = Vec::new();
        write(3, operations.into_iter(), &mut text).expect("memory");
        let expected = "num_ranks 3\n\nrank 0 {\nl1: send 8b to 1 tag 7\nl2: calc 12\nl2 requires l1\n}\n\n\
                        rank 1 {\n}\n\nrank 2 {\nl1: recv 8b from 1 tag 7\nl1 irequires l5\n}\n";
        assert_eq!(String::from_utf8(text).expect("text"), expected);
    }
}
