//! Connections -> the moments at which all of them have ended and others begin (turnovers).
//!
//! A process that ends destroys its queue pairs, and a process that starts creates its own. So if
//! no connection was used both before and after a moment, another job or another run of the same
//! job began there. This evidence does not depend on the amount of traffic: it holds for pauses
//! shorter than a window, and between two runs of one program. Jobs that overlap in time have no
//! such moment between them, and neither have phases of a job that keeps its connections. If an MPI
//! library was detected, its connections are also checked on their own, because storage and IP
//! traffic continues when a job ends.
//!
//! Connections that are used once each, one after the other, produce turnovers all the time. These
//! turnovers belong to the pattern, as recurring pauses do: a turnover counts only if its pause is
//! at least twice as long as that of every other turnover near it. If an adapter reuses a queue
//! pair number during the capture, the turnover is not detected.

use crate::model::{Profile, TrafficKind};
use std::collections::BTreeSet;

/// Factor by which the silence of a turnover must exceed the silence of others near it.
const TIMES_LONGER: i64 = 2;

/// A silence after which none of the earlier connections continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Turnover {
    /// The last packet before the silence.
    ended_ns: i64,
    /// The first packet after the silence.
    begun_ns: i64,
}

impl Turnover {
    const fn silence_ns(self) -> i64 {
        self.begun_ns.saturating_sub(self.ended_ns)
    }
}

/// The start times of the silences that count: all other silences that end within `near_ns` of
/// their end are at most half as long.
pub(super) fn ends_ns(profile: &Profile, near_ns: i64) -> BTreeSet<i64> {
    let lives = |of_mpi_alone: bool| {
        let data = profile.connections.iter().filter(|connection| connection.kind == TrafficKind::Data);
        let wanted = data.filter(move |connection| !of_mpi_alone || profile.mpi_read && connection.stack.is_some());
        wanted.map(|connection| (connection.first_time_ns, connection.last_time_ns)).collect()
    };
    [false, true]
        .into_iter()
        .flat_map(|of_mpi_alone| significant_turnover_ends_ns(&turnovers(lives(of_mpi_alone)), near_ns))
        .collect()
}

/// All turnovers, from the first and the last packet of each connection.
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

/// The start times of the turnovers that count. The search around each one stops at the first
/// silence that is too long, so the total time is about linear in the number of turnovers.
fn significant_turnover_ends_ns(turnovers: &[Turnover], near_ns: i64) -> Vec<i64> {
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
    use super::{significant_turnover_ends_ns, turnovers};

    #[test]
    fn a_turnover_counts_if_no_connection_continues_and_others_near_it_are_shorter() {
        let ends_ns = |lives_ns: &[(i64, i64)]| significant_turnover_ends_ns(&turnovers(lives_ns.to_vec()), 100);
        // Two jobs, in any order, and a job with a connection that continues.
        assert_eq!(ends_ns(&[(60, 200), (0, 30), (5, 50), (70, 90)]), [50]);
        assert_eq!(ends_ns(&[(60, 200), (0, 30), (5, 50), (20, 190)]), [0; 0]);
        assert_eq!(ends_ns(&[]), [0; 0]);
        // The start of a program has its own connections, which end 3 before those of the job
        // begin: the silence of 40 between the jobs is longer.
        assert_eq!(ends_ns(&[(0, 300), (340, 350), (353, 700)]), [300]);
        // Successive connections: no silence is twice as long as those near it. Silences far from
        // each other each count.
        assert_eq!(ends_ns(&[(0, 50), (60, 110), (125, 170), (180, 240)]), [0; 0]);
        assert_eq!(ends_ns(&[(0, 500), (510, 1000), (1015, 1500)]), [500, 1000]);
        // The earliest and the latest representable times.
        assert_eq!(ends_ns(&[(i64::MIN, i64::MIN), (i64::MAX, i64::MAX)]), [i64::MIN]);
    }
}
