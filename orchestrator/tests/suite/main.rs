//! The orchestrator with real processes: captures by a stand-in for ibdump, a switch whose mirrored
//! ports are folders, real sshd. Nothing here needs InfiniBand, Slurm or root.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests and the code that they share")]

mod killed_start;
mod lab;
mod local;
mod ssh;
mod sshd;
