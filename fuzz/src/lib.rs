//! What is fuzzed: one function for each target, all with the same arguments, so that libFuzzer and the tests call the same ones.
//!
//! Each takes any bytes and returns, or panics where something does not hold. What takes more than plain bytes to get deep reads its bytes as
//! choices: [`capture`] makes whole captures of them, [`packet`] one packet, [`profile`] and [`parts`] changes of a profile whose sums fit again.

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

mod base;
mod checked;
mod events;
mod render;
mod scratch;

/// A target: its name, which is that of its corpus, and what it does with bytes.
pub type Target = (&'static str, fn(&[u8]));

/// All of them. The last ones are slow: they run the whole program.
pub const TARGETS: [Target; 17] = [
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
