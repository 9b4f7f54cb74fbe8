//! `ibscope_fuzz::mad` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ibscope_fuzz::mad::run(bytes));
