//! The host names that a server without authentication accepts. A web page can make a browser send
//! requests to a server on loopback in two ways. Under DNS rebinding, the page's own name resolves
//! to loopback and stands in `Host`. Otherwise, the page's address stands in `Origin`.
//!
//! DIFFERS: `kubectl proxy --accept-hosts` takes regular expressions; here names are whole.

use std::net::IpAddr;

use super::exchange::Request;

/// Checks `Host` and `Origin` of a request that arrived at the address `local`. Accepts loopback
/// names, `local` and `names`.
///
/// # Errors
/// The reason, and for a name the flag that would allow it.
pub(super) fn check(request: &Request, local: IpAddr, names: &[String]) -> Result<(), String> {
    let host = request.header("host");
    // Only HTTP/1.0 allows a missing `Host`, and browsers always send it.
    if !host.is_empty() && !is_accepted(host, local, names) {
        return Err(format!(
            "the Host header {host} is not accepted: add it to --accept-hosts"
        ));
    }
    let origin = request.header("origin");
    if !origin.is_empty() && !is_same_origin(origin, host) {
        return Err(format!("requests from web pages of {origin} are rejected"));
    }
    Ok(())
}

fn is_accepted(host: &str, local: IpAddr, names: &[String]) -> bool {
    let name = without_port(host);
    let is_address = |address: IpAddr| {
        let address = address.to_canonical();
        address.is_loopback() || address == local.to_canonical()
    };
    match name.trim_matches(['[', ']']).parse() {
        Ok(address) if is_address(address) => true,
        _ => {
            let mut names = names.iter().map(String::as_str).chain(["localhost"]);
            names.any(|it| it.eq_ignore_ascii_case(name))
        }
    }
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        // An IPv6 address without brackets has more than one colon.
        Some((name, port)) if port.bytes().all(|it| it.is_ascii_digit()) => name,
        _ => host,
    }
}

fn is_same_origin(origin: &str, host: &str) -> bool {
    let authority = origin.split_once("://").map(|(_, authority)| authority);
    authority.is_some_and(|authority| authority.eq_ignore_ascii_case(host))
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::{Request, check};

    #[track_caller]
    fn is_allowed(host: &str, origin: &str) -> bool {
        let headers = [("host", host), ("origin", origin)];
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let request = Request {
            headers: headers.to_vec(),
            ..Request::default()
        };
        let local = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 7));
        check(&request, local, &["dev.shop.svc".to_owned()]).is_ok()
    }

    #[test]
    fn only_own_names_and_own_pages_are_accepted() {
        for host in [
            "localhost:8001",
            "LOCALHOST",
            "127.0.0.1:8001",
            "127.1.2.3",
            "[::1]:8001",
            "[::1]",
            "10.0.0.7:8001",
            "dev.shop.svc:80",
            "",
        ] {
            assert!(is_allowed(host, ""), "{host}");
        }
        for host in [
            "evil.example",
            "localhost.evil.example:8001",
            "127.0.0.1.evil.example",
            "10.0.0.8:8001",
            "[::2]:8001",
            "shop.svc",
        ] {
            assert!(!is_allowed(host, ""), "{host}");
        }
        assert!(is_allowed("localhost:8001", "http://localhost:8001"));
        for origin in ["http://evil.example", "null", "http://localhost:3000"] {
            assert!(!is_allowed("localhost:8001", origin), "{origin}");
        }
    }
}
