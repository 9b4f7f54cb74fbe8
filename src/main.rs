//! The `ibscope` program: see `ibscope --help`.

use mimalloc::MiMalloc;
use std::process::ExitCode;

/// Many connections need millions of small blocks, which other threads free in another order than
/// they were allocated. The allocator of the C library is slower for them, and fragments the memory
/// that it keeps.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    ibscope::cli::main()
}
