//! What is to be said beside a matrix.

use super::units::bytes;
use crate::analysis::By;
use crate::analysis::matrix::Selection;
use crate::analysis::totals::Totals;
use crate::model::Profile;
use crate::model::profile::Traffic;

/// What is to be said beside a matrix or timeline by rank of point-to-point messages alone.
#[must_use]
pub fn note(profile: &Profile, by: By, selection: Selection) -> Option<String> {
    let is_partial = by == By::Rank && selection == Selection::P2p;
    is_partial.then(|| mostly_collective(&Totals::of(profile))).flatten()
}

/// What is to be said where collective operations carry more than point-to-point messages, which matrices by rank show alone.
pub(crate) fn mostly_collective(totals: &Totals<'_>) -> Option<String> {
    let Traffic { p2p_mpi_bytes, collective_mpi_bytes, .. } = totals.traffic;
    (collective_mpi_bytes > p2p_mpi_bytes).then(|| {
        format!(
            "collective operations carry most of the MPI bytes: {}, point-to-point messages {}; `matrix --by rank` shows point-to-point \
             messages alone, with --traffic all both",
            bytes(collective_mpi_bytes),
            bytes(p2p_mpi_bytes)
        )
    })
}
