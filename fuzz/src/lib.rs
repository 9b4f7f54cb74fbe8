//! Fuzz targets: one function per target, called by libFuzzer and by the tests.
//!
//! Each function takes any bytes, and panics if a property does not hold. Targets that need
//! structured input to reach deep code read the bytes as choices: [`capture`] builds whole
//! captures, [`packet`] builds one packet, [`profile`] and [`parts`] change a profile and make its
//! checksums match.

pub mod capture;
pub mod config;
pub mod cubex;
pub mod fabric_tools;
pub mod framing;
pub mod link;
pub mod mad;
pub mod manifest;
pub mod merge;
pub mod mpi;
pub mod opening;
pub mod otf2;
pub mod packet;
pub mod parts;
pub mod pipeline;
pub mod profile;
pub mod tables;

mod crosscheck;
mod events;
mod render;
mod sample_profiles;
mod scratch;

/// A target: its name, which is also that of its corpus, and its function.
pub type FuzzTarget = (&'static str, fn(&[u8]));

/// All targets. The last ones are slow, because they run the whole program.
pub const TARGETS: [FuzzTarget; 17] = [
    ("framing", framing::run),
    ("opening", opening::run),
    ("link", link::run),
    ("packet", packet::run),
    ("mad", mad::run),
    ("mpi", mpi::run),
    ("fabric_tools", fabric_tools::run),
    ("otf2", otf2::run),
    ("cubex", cubex::run),
    ("tables", tables::run),
    ("config", config::run),
    ("manifest", manifest::run),
    ("profile", profile::run),
    ("parts", parts::run),
    ("pipeline", pipeline::run),
    ("capture", capture::run),
    ("merge", merge::run),
];
