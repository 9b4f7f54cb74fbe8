//! Plans: from a configuration and a job to the steps of a run. No step is done.

mod config;
mod job;
mod lab;
mod manifest;
mod names;
mod plan;
mod property;
