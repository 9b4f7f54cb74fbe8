//! A schedule as text in GOAL, the input of LogGOPSim and ATLAHS.
//!
//! Grammar: that of `txt2bin` (`LogGOPSim/txt2bin.re` in github.com/spcl/LogGOPSim), one statement
//! per line. Labels are unique in their rank.

use crate::analysis::goal_schedule::{GoalKind, GoalMessage, GoalOperation};
use std::fmt::Write as _;
use std::io::{self, Write};

/// Writes a schedule. `operations` are those of rank 0, then those of rank 1, and so on, up to
/// `ranks`.
pub fn write(
    ranks: u32,
    operations: impl Iterator<Item = io::Result<GoalOperation>>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut operations = operations.peekable();
    writeln!(out, "num_ranks {ranks}")?;
    for rank in 0..ranks {
        writeln!(out, "\nrank {rank} {{")?;
        while let Some(operation) = operations.next_if(|next| next.as_ref().map_or(true, |next| next.rank == rank)) {
            out.write_all(statements(&operation?).as_bytes())?;
        }
        writeln!(out, "}}")?;
    }
    Ok(())
}

/// The operation, and its dependencies.
fn statements(operation: &GoalOperation) -> String {
    let label = operation.number;
    let message = |verb: &str, toward: &str, own: GoalMessage| {
        format!("l{label}: {verb} {}b {toward} {} tag {}\n", own.bytes, own.peer, own.tag)
    };
    let mut text = match operation.kind {
        GoalKind::Send(own) => message("send", "to", own),
        GoalKind::Receive(own) => message("recv", "from", own),
        GoalKind::Compute { ns } => format!("l{label}: calc {ns}\n"),
    };
    operation.after_end.iter().for_each(|other| _ = writeln!(text, "l{label} requires l{other}"));
    operation.after_start.iter().for_each(|other| _ = writeln!(text, "l{label} irequires l{other}"));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_follow_the_grammar() {
        let message = GoalMessage { peer: 1, bytes: 8, tag: 7 };
        let operation = |rank, number, kind, after_end: &[u64], after_start| {
            Ok(GoalOperation { rank, number, kind, after_end: after_end.to_vec(), after_start })
        };
        let operations = [
            operation(0, 1, GoalKind::Send(message), &[], None),
            operation(0, 2, GoalKind::Compute { ns: 12 }, &[1], None),
            operation(2, 1, GoalKind::Receive(message), &[], Some(5)),
        ];
        let mut text = Vec::new();
        write(3, operations.into_iter(), &mut text).expect("memory");
        let expected = "num_ranks 3\n\nrank 0 {\nl1: send 8b to 1 tag 7\nl2: calc 12\nl2 requires l1\n}\n\n\
                        rank 1 {\n}\n\nrank 2 {\nl1: recv 8b from 1 tag 7\nl1 irequires l5\n}\n";
        assert_eq!(String::from_utf8(text).expect("text"), expected);
    }
}
