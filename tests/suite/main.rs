//! The program against recorded traffic, real tools and damaged files. One binary, so that polars is linked once.

mod align;
mod anonymize;
mod architecture;
mod bounds;
mod browser;
mod cli;
mod columns;
mod compare;
mod compat;
mod constructed;
mod crafted;
#[cfg(target_os = "linux")]
mod crosscheck;
mod cuts;
mod documents;
mod fabric;
#[cfg(target_os = "linux")]
mod faults;
mod fields;
mod floor;
mod forms;
mod framing;
mod fuzz;
mod health;
mod hostile;
mod joined;
mod latency;
mod links;
mod manifest;
#[cfg(target_os = "linux")]
mod memory;
mod merge;
mod messages;
mod mpi_times;
mod nccl;
mod notebooks;
mod over_time;
mod partial;
mod phases;
mod privacy;
mod properties;
mod python;
mod rates;
mod recorded;
mod release;
mod runs;
mod slurm;
mod synthetic;
mod tools;
mod trace;
mod tshark;
mod unknown;
mod watch;
mod wire;
mod writing;
