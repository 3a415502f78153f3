//! By which names a server without authentication lets itself be called. A web page can have a
//! browser send requests to a server on loopback: under a name of its own that it makes lead there
//! (DNS rebinding, then `Host` is that name), or from its own address, which `Origin` says.
//!
//! DIFFERS: `kubectl proxy --accept-hosts` takes regular expressions; here names are whole.

use std::net::IpAddr;

use super::exchange::Request;

/// Looks at `Host` and `Origin` of a request that came in at `local`. Loopback and `local` may be
/// named, and `names`.
///
/// # Errors
/// What is wrong, and what would allow it.
pub(super) fn check(request: &Request, local: IpAddr, names: &[String]) -> Result<(), String> {
    let host = request.header("host");
    // Only HTTP/1.0 can leave it out, and no browser does.
    if !host.is_empty() && !is_accepted(host, local, names) {
        return Err(format!(
            "the Host header {host} is not accepted: add it to --accept-hosts"
        ));
    }
    let origin = request.header("origin");
    if !origin.is_empty() && !is_own(origin, host) {
        return Err(format!("requests from web pages of {origin} are refused"));
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
        // An address of IPv6 without brackets would have more colons.
        Some((name, port)) if port.bytes().all(|it| it.is_ascii_digit()) => name,
        _ => host,
    }
}

fn is_own(origin: &str, host: &str) -> bool {
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
    fn only_its_own_names_and_no_foreign_page_are_let_in() {
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
