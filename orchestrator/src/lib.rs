//! Makes a capture happen and undoes it: from a Slurm job to capture files and back to a clean fabric.
//!
//! This crate knows no packets. So far it holds the [`manifest`]: what a run leaves for the analysis.
#![forbid(unsafe_code)]

pub mod capture;
pub mod config;
mod effort;
pub mod fabric;
pub mod guid;
pub mod job;
pub mod journal;
pub mod manifest;
mod mirror;
pub mod name;
pub mod plan;
pub mod remote;
pub mod run;
mod stamp;
pub mod step;
pub mod undo;
