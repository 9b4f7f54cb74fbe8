//! `ibscope_fuzz::manifest` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ibscope_fuzz::manifest::run(bytes));
