//! A small profile to start from: what the program makes of a recorded job of two ranks.

use crate::scratch;
use ibscope::model::Profile;
use ibscope::pipeline::{self, Options};
use std::path::PathBuf;
use std::sync::LazyLock;

static PROFILE: LazyLock<Profile> = LazyLock::new(|| analyzed(true));

/// It, with what a merge needs.
pub(crate) fn profile() -> &'static Profile {
    &PROFILE
}

/// The same without, in few bins.
pub(crate) static PLAIN: LazyLock<Profile> = LazyLock::new(|| analyzed(false));

fn analyzed(keep_parts: bool) -> Profile {
    let sample = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../samples/runs/ompi-rc-ring2/node1.pcap.zst");
    let options = Options { keep_parts, max_cells: 200, threads: 1, ..Options::default() };
    pipeline::analyze(&[sample], &options, &|_| {}).expect("a recorded run")
}

/// The folder of a profile, written once and anew by whoever changed it.
pub(crate) fn written(name: &str, profile: &Profile) -> PathBuf {
    let place = scratch::place(name);
    pipeline::Writer::create(&place, &[]).and_then(|writer| writer.finish(profile)).expect("a profile");
    place
}
