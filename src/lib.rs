//! ibscope analyzes captured InfiniBand and RoCE traffic of MPI jobs: how much each rank sent to
//! each other rank, and when.
//!
//! A capture passes these stages. Each is a module; the table in ARCHITECTURE.md lists which
//! modules a stage may import.
//!
//! 1. [`input`] opens paths, `-` and FIFOs, decompresses them, and splits the bytes into batches at
//!    record ends.
//! 2. [`align`] compares the clocks of several inputs before the rest runs.
//! 3. [`decode`] turns a batch into packet records of 32 bytes ([`model::PacketRecord`]).
//! 4. [`flow`] tracks sequence numbers and messages per connection.
//! 5. [`reduce`] adds up per connection and time bin, and removes mirror copies at the end.
//! 6. [`ranks`] identifies the MPI library, the job and the rank of each connection.
//! 7. [`profile`] writes and reads the result, a folder with JSON and Parquet.
//! 8. [`analysis`] computes the numbers that outputs show, and [`render`] writes and draws them.
//!
//! Beside these stages, [`crosscheck`] compares a profile with a trace of the application,
//! [`anonymize`] writes captures that can be shared, and [`scratch`] puts results in place when
//! they are whole.
//!
//! [`pipeline`] connects the stages. A program that uses this library starts there:
//!
//! ```no_run
//! # fn main() -> Result<(), ibscope::pipeline::PipelineError> {
//! let options = ibscope::pipeline::AnalysisOptions::default();
//! let profile = ibscope::pipeline::analyze(&["sink.pcap.zst".into()], &options, &|_bytes| {})?;
//! for connection in &profile.connections {
//!     assert!(connection.traffic.wire_bytes >= connection.traffic.payload_bytes);
//! }
//! # Ok(())
//! # }
//! ```

pub mod align;
pub mod analysis;
pub mod anonymize;
pub mod cli;
pub mod crosscheck;
pub mod decode;
pub mod flow;
pub mod input;
pub mod model;
pub mod pipeline;
pub mod profile;
pub mod ranks;
pub mod reduce;
pub mod render;
pub mod scratch;
