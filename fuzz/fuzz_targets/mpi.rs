//! `ibscope_fuzz::mpi` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ibscope_fuzz::mpi::run(bytes));
