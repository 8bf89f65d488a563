//! libFuzzer's way into `ringlog_fuzz::index`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ringlog_fuzz::index::run(bytes));
