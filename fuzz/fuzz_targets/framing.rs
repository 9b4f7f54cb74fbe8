//! `ibscope_fuzz::framing` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ibscope_fuzz::framing::run(bytes));
