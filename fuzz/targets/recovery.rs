//! libFuzzer's way into `ringlog_fuzz::recovery`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ringlog_fuzz::recovery::run(bytes));
