//! The program tested with recorded traffic, real tools and damaged files. One binary, so that
//! polars is linked once.

mod align;
mod anonymize;
mod architecture;
mod bounds;
mod browser;
mod classes;
mod cli;
mod columns;
mod compare;
mod compat;
mod concatenated;
mod constructed;
mod crafted;
#[cfg(target_os = "linux")]
mod crosscheck;
mod damaged_inputs;
mod documents;
mod encapsulation;
mod fabric;
#[cfg(target_os = "linux")]
mod faults;
mod fields;
mod forms;
mod framing;
mod fuzz;
mod health;
mod hostile;
mod joined;
mod kernel_tunnels;
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
mod notes;
mod partial;
mod paths;
mod phases;
mod privacy;
mod properties;
mod python;
mod rates;
mod recorded;
mod release;
mod runs;
mod sampling;
mod slurm;
mod synthetic;
mod theoretical_minimum;
mod time_series;
mod tools;
mod trace;
mod trust;
mod tshark;
mod unknown;
mod values;
mod watch;
mod wire;
mod writing;
