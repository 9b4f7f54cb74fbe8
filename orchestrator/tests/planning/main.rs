//! From a configuration and a job to what will be done: nothing here is done.

mod config;
mod job;
mod lab;
mod manifest;
mod names;
mod plan;
mod property;
