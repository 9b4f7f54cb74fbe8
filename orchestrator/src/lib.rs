//! Makes a capture happen and undoes it: from a Slurm job to capture files and back to a clean fabric.
//!
//! This crate knows no packets. The way of a run is [`job`], [`fabric`], [`plan`], [`run`], [`undo`], [`manifest`]; [`hook`] goes it for Slurm.
#![forbid(unsafe_code)]

pub mod capture;
pub mod config;
mod effort;
pub mod fabric;
pub mod folder;
pub mod follow;
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
pub mod plan;
pub mod quote;
pub mod remote;
pub mod run;
pub mod selftest;
pub mod session;
mod sink;
mod stamp;
pub mod status;
pub mod step;
mod text;
pub mod text_file;
pub mod undo;
