//! `ibscope_fuzz::capture` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ibscope_fuzz::capture::run(bytes));
