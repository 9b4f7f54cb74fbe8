//! What stands for programs that cannot run here. The test program is called by their names and does their work then.

use std::path::PathBuf;

/// The lab's folder: the program lies in `bin` of it.
pub(crate) fn folder() -> PathBuf {
    let program = PathBuf::from(std::env::args_os().next().expect("a name"));
    program.parent().and_then(|bin| bin.parent()).expect("called by its whole path").to_owned()
}
