//! libFuzzer's way into `ringlog_fuzz::frame`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ringlog_fuzz::frame::run(bytes));
