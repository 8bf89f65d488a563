//! libFuzzer's way into `ringlog_fuzz::checkpoint`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ringlog_fuzz::checkpoint::run(bytes));
