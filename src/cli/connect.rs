//! `--server`, which every client command takes, and what to do when nothing answers there.
//!
//! Owns: the flag, its environment variable, the connection's options. Never does: ask anything.
//! Left: `client`. Right: the client commands.

use clap::Args;

use super::Failure;
use crate::client::{Backoff, Client, Error, Options};

#[derive(Args, Clone, Debug)]
pub struct Server {
    /// Any address of the server.
    #[arg(
        long = "server",
        id = "server",
        env = "RINGLOG_SERVER",
        default_value = "127.0.0.1:7440",
        value_name = "HOST:PORT",
        value_parser = address
    )]
    pub address: String,
}

/// Both parts are needed: a bare host would fail later, with a worse message.
fn address(text: &str) -> Result<String, String> {
    match text.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => Ok(text.into()),
        _ => Err("give HOST:PORT, 127.0.0.1:7440 for one".into()),
    }
}

impl Server {
    /// Connects, trying once: who types a wrong address wants to know now.
    pub fn connect(&self) -> Result<Client, Failure> {
        self.connect_with(Backoff { attempts_max: 1, ..Backoff::default() })
    }

    /// Connects, trying as long as `backoff` says; so does the client when it reconnects.
    pub fn connect_with(&self, backoff: Backoff) -> Result<Client, Failure> {
        self.dial(backoff).map_err(|error| self.explain(&error))
    }

    pub fn dial(&self, backoff: Backoff) -> Result<Client, Error> {
        let client_name = concat!("ringlog ", env!("CARGO_PKG_VERSION")).to_owned();
        Client::connect(&self.address, Options { client_name, ..Options::default() }, backoff)
    }

    fn explain(&self, error: &Error) -> Failure {
        if error.is_disconnect() {
            return Failure(format!(
                "{error}\nIs a server listening there? Start one with `ringlog serve --data-dir \
                 DIR`, or name another with --server or RINGLOG_SERVER."
            ));
        }
        Failure(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_host_and_a_port() {
        for good in ["127.0.0.1:7440", "[::1]:1", "log.example:65535"] {
            assert_eq!(address(good).as_deref(), Ok(good));
        }
        for bad in ["", "7440", ":7440", "host", "host:", "host:port", "host:70000"] {
            assert!(address(bad).is_err(), "{bad}");
        }
    }
}
