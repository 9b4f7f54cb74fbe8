//! `ibscope_fuzz::otf2` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ibscope_fuzz::otf2::run(bytes));
