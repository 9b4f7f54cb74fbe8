//! Stand-ins for programs that cannot run here. The test program does their work if it is called by
//! their names.

use std::path::PathBuf;

/// Folder of the lab: the program is in its folder `bin`.
pub(crate) fn folder() -> PathBuf {
    let program = PathBuf::from(std::env::args_os().next().expect("a name"));
    program.parent().and_then(|bin| bin.parent()).expect("called by its absolute path").to_owned()
}
