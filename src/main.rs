//! The `ibscope` program: see `ibscope --help`.

use mimalloc::MiMalloc;
use std::process::ExitCode;

/// An analysis of many connections has millions of small blocks, given up in another order and by other threads than they were made: the allocator of
/// the C library takes more time for them, and what it keeps lies in pieces that fit nothing.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    ibscope::cli::main()
}
