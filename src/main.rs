//! The `ibscope` program: see `ibscope --help`.

use std::process::ExitCode;

fn main() -> ExitCode {
    ibscope::cli::main()
}
