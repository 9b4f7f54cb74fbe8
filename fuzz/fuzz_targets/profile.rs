//! `ibscope_fuzz::profile` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ibscope_fuzz::profile::run(bytes));
