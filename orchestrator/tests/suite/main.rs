//! The orchestrator against real processes: captures by a stand-in for ibdump, a switch whose mirrored ports are folders, real sshd.
//! Nothing here needs InfiniBand, Slurm or root.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests, also where they share code")]

mod cut_off;
mod lab;
mod local;
mod ssh;
mod sshd;
