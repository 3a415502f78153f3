//! A daemon's own pages as its process serves them over plain HTTP.

use std::net::{Ipv4Addr, TcpListener};

use replicaset_controller::client::{Client, ClientConfig, ClientError, ClientOptions, Request};
use replicaset_controller::stdx::stop::Stop;

/// A port of 127.0.0.1 for `--insecure-port`.
#[derive(Debug)]
pub(crate) struct PlainPort(u16);

impl PlainPort {
    /// One that nobody has, below those that outgoing connections get.
    pub(crate) fn free() -> Self {
        let port = loop {
            let port = fastrand::u16(11_000..31_000);
            if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
                break port;
            }
        };
        Self(port)
    }

    /// The flag by which a daemon takes it.
    pub(crate) fn argument(&self) -> String {
        format!("--insecure-port={}", self.0)
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.0)
    }

    /// Code and body of a page; 0 and the reason if nobody answers.
    pub(crate) fn get(&self, path: &str) -> (u16, String) {
        let config = ClientConfig::plain(&self.url());
        let client = Client::new(&config, &ClientOptions::default(), &Stop::new());
        let client = client.expect("the options are good");
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let mut request = Request::get(path).accept("*/*").once();
        if !query.is_empty() {
            request = request.query(query, "");
        }
        match client.send(&request) {
            Ok(answer) => (
                answer.code,
                String::from_utf8(answer.body).expect("pages are text"),
            ),
            Err(ClientError::Status(status)) => {
                let message = status.object().message.clone();
                (status.code(), message.unwrap_or_default())
            }
            Err(error) => (0, error.to_string()),
        }
    }
}
