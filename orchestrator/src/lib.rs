//! Captures the traffic of Slurm jobs: mirrors the ports of a job's nodes, runs capture programs,
//! and restores the fabric afterwards.
//!
//! The input is a Slurm job and a configuration; the output is capture files with a manifest. This
//! crate does not parse packets. A run passes through [`job`], [`fabric`], [`plan`], [`run`],
//! [`undo`] and [`manifest`], in this order; [`hook`] does all of it for Slurm's prolog and epilog.
#![forbid(unsafe_code)]

pub mod analysis;
pub mod capture;
pub mod config;
mod context;
pub mod fabric;
pub mod folder;
pub mod guid;
pub mod hook;
pub mod install;
pub mod job;
pub mod journal;
pub mod log;
pub mod manifest;
mod mirror;
pub mod name;
mod order;
pub mod origin;
pub mod plan;
pub mod quote;
pub mod remote;
mod retention;
pub mod run;
mod scratch;
pub mod selftest;
pub mod session;
mod sink;
pub mod status;
pub mod step;
pub mod sweep;
mod text;
pub mod text_file;
mod timestamp;
pub mod undo;
