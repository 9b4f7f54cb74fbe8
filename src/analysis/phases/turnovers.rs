//! Connections -> the moments at which all of them have ended for good and others begin.
//!
//! A process that ends takes its queue pairs along, and one that starts makes its own. So where no connection was used both before and after a moment, what
//! talked before is gone and something else talks: another job, or another start of the same. That is told by who talks and not by how much, so it
//! is as clear in a pause that is shorter than a window, and between two runs of one program. What several jobs sent at a time has no such moment, and
//! neither have the phases of one job that keeps its connections. Where an MPI library was recognised, its connections are looked at by themselves as
//! well: storage and IP go on whatever becomes of a job.
//!
//! Connections that are used once each, one after the other, make such moments all the time. They belong to the pattern, as pauses do: a moment counts
//! where the silence in it is at least twice as long as in all others near it. An adapter that gives the number of a queue pair to another while the capture
//! runs hides such a moment.

use crate::model::{Kind, Profile};
use std::collections::BTreeSet;

/// So many times as long as others near it is the silence of a moment that counts.
const TIMES_LONGER: i64 = 2;

/// A silence, after which no connection goes on that was there before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Turnover {
    /// The last packet before it.
    ended_ns: i64,
    /// The first packet after it.
    begun_ns: i64,
}

impl Turnover {
    const fn silence_ns(self) -> i64 {
        self.begun_ns.saturating_sub(self.ended_ns)
    }
}

/// Ends of all that was sent before, of those moments that count: others that end their silence within `near_ns` have at most half of it.
pub(super) fn ends_ns(profile: &Profile, near_ns: i64) -> BTreeSet<i64> {
    let lives = |of_mpi_alone: bool| {
        let data = profile.connections.iter().filter(|connection| connection.kind == Kind::Data);
        let wanted = data.filter(move |connection| !of_mpi_alone || profile.mpi_read && connection.stack.is_some());
        wanted.map(|connection| (connection.first_time_ns, connection.last_time_ns)).collect()
    };
    [false, true].into_iter().flat_map(|of_mpi_alone| clear(&turnovers(lives(of_mpi_alone)), near_ns)).collect()
}

/// All such moments, from the first and the last packet of each connection.
fn turnovers(mut lives_ns: Vec<(i64, i64)>) -> Vec<Turnover> {
    lives_ns.sort_unstable();
    let mut turnovers = Vec::new();
    let mut latest: Option<i64> = None;
    for (begun_ns, last_ns) in lives_ns {
        if let Some(ended_ns) = latest.filter(|ended_ns| *ended_ns < begun_ns) {
            turnovers.push(Turnover { ended_ns, begun_ns });
        }
        latest = latest.max(Some(last_ns));
    }
    turnovers
}

/// The ends of those that count. Looking around stops at the first that is too long, so all together this takes about as long as there are moments.
fn clear(turnovers: &[Turnover], near_ns: i64) -> Vec<i64> {
    let counts = |(index, turnover): (usize, &Turnover)| {
        let is_shorter = |other: &Turnover| other.silence_ns().saturating_mul(TIMES_LONGER) <= turnover.silence_ns();
        let is_near = |other: &&Turnover| turnover.begun_ns.saturating_sub(other.begun_ns).saturating_abs() <= near_ns;
        turnovers[..index].iter().rev().take_while(is_near).all(is_shorter)
            && turnovers[index + 1..].iter().take_while(is_near).all(is_shorter)
    };
    turnovers.iter().enumerate().filter(|one| counts(*one)).map(|(_, turnover)| turnover.ended_ns).collect()
}

#[cfg(test)]
mod tests {
    use super::{clear, turnovers};

    #[test]
    fn a_moment_counts_where_nothing_goes_on_and_others_near_it_are_shorter() {
        let ends_ns = |lives_ns: &[(i64, i64)]| clear(&turnovers(lives_ns.to_vec()), 100);
        // Two jobs, in any order, and one with a connection that goes on.
        assert_eq!(ends_ns(&[(60, 200), (0, 30), (5, 50), (70, 90)]), [50]);
        assert_eq!(ends_ns(&[(60, 200), (0, 30), (5, 50), (20, 190)]), [0; 0]);
        assert_eq!(ends_ns(&[]), [0; 0]);
        // A start that has connections of its own, 3 before those of the job: the 40 between the jobs are longer.
        assert_eq!(ends_ns(&[(0, 300), (340, 350), (353, 700)]), [300]);
        // One after the other: none is twice as long as those near it. Far from each other each counts.
        assert_eq!(ends_ns(&[(0, 50), (60, 110), (125, 170), (180, 240)]), [0; 0]);
        assert_eq!(ends_ns(&[(0, 500), (510, 1000), (1015, 1500)]), [500, 1000]);
        // The earliest and the latest of times.
        assert_eq!(ends_ns(&[(i64::MIN, i64::MIN), (i64::MAX, i64::MAX)]), [i64::MIN]);
    }
}
