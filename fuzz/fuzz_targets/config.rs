//! `ibscope_fuzz::config` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ibscope_fuzz::config::run(bytes));
