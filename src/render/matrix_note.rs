//! A note for matrices of point-to-point messages when collectives carry most of the MPI bytes.

use super::units::bytes;
use crate::analysis::GroupBy;
use crate::analysis::matrix::Selection;
use crate::analysis::totals::ProfileTotals;
use crate::model::Profile;
use crate::model::profile::Traffic;

/// The note for a matrix or timeline; only by rank and with point-to-point messages alone.
#[must_use]
pub fn note(profile: &Profile, by: GroupBy, selection: Selection) -> Option<String> {
    let is_partial = by == GroupBy::Rank && selection == Selection::P2p;
    is_partial.then(|| mostly_collective(&ProfileTotals::of(profile))).flatten()
}

/// The note if collective operations carry more MPI bytes than point-to-point messages.
pub(crate) fn mostly_collective(totals: &ProfileTotals<'_>) -> Option<String> {
    let Traffic { p2p_mpi_bytes, collective_mpi_bytes, .. } = totals.traffic;
    (collective_mpi_bytes > p2p_mpi_bytes).then(|| {
        format!(
            "collective operations carry most of the MPI bytes: {}, against {} in point-to-point messages. `matrix --by rank` shows \
             point-to-point messages only; --traffic all adds the collective ones",
            bytes(collective_mpi_bytes),
            bytes(p2p_mpi_bytes)
        )
    })
}
