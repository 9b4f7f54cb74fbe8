//! A small profile as a starting point: the analysis of a recorded job of two ranks.

use crate::scratch;
use ibscope::model::Profile;
use ibscope::pipeline::{self, AnalysisLimits, AnalysisOptions};
use std::path::PathBuf;
use std::sync::LazyLock;

static PROFILE: LazyLock<Profile> = LazyLock::new(|| analyze(true));

/// The sample profile, with the data that a merge needs.
pub(crate) fn profile() -> &'static Profile {
    &PROFILE
}

/// The sample profile without the data that a merge needs.
pub(crate) static PLAIN: LazyLock<Profile> = LazyLock::new(|| analyze(false));

fn analyze(keep_parts: bool) -> Profile {
    let sample = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../samples/runs/ompi-rc-ring2/node1.pcap.zst");
    let limits = AnalysisLimits { max_cells: 200, ..AnalysisLimits::default() };
    let options = AnalysisOptions { keep_parts, limits, threads: 1, ..AnalysisOptions::default() };
    pipeline::analyze(&[sample], &options, &|_| {}).expect("a recorded run")
}

/// Writes the profile to a folder of this name and returns its path.
pub(crate) fn write_profile(name: &str, profile: &Profile) -> PathBuf {
    let place = scratch::path(name);
    pipeline::ProfileWriter::create(&place, &[]).and_then(|writer| writer.finish(profile)).expect("a profile");
    place
}
