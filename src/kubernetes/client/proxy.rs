//! The proxy to the API server: `proxy-url` of the kubeconfig, else the environment as Go reads it.
//! Chosen once, when the configuration is loaded.

use std::net::IpAddr;

use ipnet::IpNet;
use ureq::http::uri::Authority;

use super::config::Environment;

/// Returns the proxy for `host:port`, if any: `configured` (`proxy-url`), else the environment's
/// for `scheme` (Go `golang.org/x/net/http/httpproxy:Config.ProxyFunc`). `NO_PROXY` does not apply
/// to `proxy-url`.
///
/// DIFFERS: `ALL_PROXY` counts too, as for curl; and connections to a server without TLS also use a
/// tunnel.
pub(super) fn choose(
    configured: Option<&str>,
    environment: &Environment,
    scheme: &str,
    host: &str,
    port: u16,
) -> Result<Option<ureq::Proxy>, String> {
    if let Some(url) = configured {
        return parse(url)
            .map(Some)
            .map_err(|problem| format!("proxy-url {:?} {problem}", without_password(url)));
    }
    let var = |name: &str| {
        let lower = name.to_lowercase();
        let values = [environment.var(name), environment.var(&lower)];
        let mut values = values.into_iter().flatten().map(str::trim);
        values.find(|value| !value.is_empty())
    };
    let name = match scheme {
        "https" => "HTTPS_PROXY",
        _ => "HTTP_PROXY",
    };
    let Some((name, url)) = [name, "ALL_PROXY"]
        .into_iter()
        .find_map(|name| Some((name, var(name)?)))
    else {
        return Ok(None);
    };
    if bypasses(var("NO_PROXY").unwrap_or_default(), host, port) {
        return Ok(None);
    }
    parse(url).map(Some).map_err(|problem| {
        format!(
            "the environment's {name}={:?} {problem}",
            without_password(url)
        )
    })
}

fn parse(url: &str) -> Result<ureq::Proxy, String> {
    let (scheme, rest) = url.split_once("://").unwrap_or(("http", url));
    // As with Go, a SOCKS proxy resolves the server's name, so `socks5` means `socks5h`.
    let scheme = match &*scheme.to_ascii_lowercase() {
        "http" => "http",
        "https" => "https",
        "socks5" | "socks5h" => "socks5h",
        _ => return Err("has a scheme other than http, https and socks5".to_owned()),
    };
    let proxy = ureq::Proxy::new(&format!("{scheme}://{rest}"));
    let proxy = proxy.map_err(|error| format!("is not a proxy's URL: {error}"))?;
    proxy.uri().authority().map(port_of).transpose()?;
    Ok(proxy)
}

/// Returns the URL without user and password, for logs and errors.
pub(super) fn without_password(url: &str) -> String {
    let start = url.find("://").map_or(0, |i| i + 3);
    match url[start..].rfind('@') {
        Some(at) => format!("{}...{}", &url[..start], &url[start + at..]),
        None => url.to_owned(),
    }
}

/// True if `host:port` is reached without a proxy. That applies to this machine and to every entry
/// of `no_proxy`: `*`, addresses, networks, names (with their subdomains), each with or without a
/// port.
fn bypasses(no_proxy: &str, host: &str, port: u16) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let host = host.trim_end_matches('.').to_lowercase();
    let address: Option<IpAddr> = host.parse().ok();
    if host == "localhost" || address.is_some_and(|address| address.is_loopback()) {
        return true;
    }
    no_proxy
        .split(',')
        .map(|entry| entry.trim().to_lowercase())
        .any(|entry| matches(&entry, &host, address, port))
}

fn matches(entry: &str, host: &str, address: Option<IpAddr>, port: u16) -> bool {
    if entry.is_empty() {
        return false;
    }
    if entry == "*" {
        return true;
    }
    if let Ok(network) = entry.parse::<IpNet>() {
        return address.is_some_and(|address| network.contains(&address));
    }
    let (name, entry_port) = split_port(entry);
    if entry_port.is_some_and(|entry_port| entry_port != port) {
        return false;
    }
    if let Ok(entry) = name.parse::<IpAddr>() {
        return address == Some(entry);
    }
    if address.is_some() {
        return false;
    }
    // `.example.com` covers only its subdomains, `example.com` also itself; `*.example.com` means
    // `.example.com`.
    let name = name.strip_prefix('*').unwrap_or(name);
    match name.strip_prefix('.') {
        Some(parent) => is_subdomain(host, parent),
        None => host == name || is_subdomain(host, name),
    }
}

fn is_subdomain(host: &str, parent: &str) -> bool {
    host.strip_suffix(parent)
        .is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
}

/// Splits off a port, if there is one. An IPv6 address with a port needs brackets.
fn split_port(entry: &str) -> (&str, Option<u16>) {
    if let Some(rest) = entry.strip_prefix('[')
        && let Some((address, rest)) = rest.split_once(']')
    {
        return (address, rest.strip_prefix(':').and_then(|p| p.parse().ok()));
    }
    match entry.split_once(':') {
        Some((name, port)) if !port.contains(':') => (name, port.parse().ok()),
        _ => (entry, None),
    }
}

/// The port of a URL, if it has one. `http` takes any text for a port, and ureq then connects to
/// the scheme's default.
pub(super) fn port_of(authority: &Authority) -> Result<Option<u16>, String> {
    let (_, host) = authority
        .as_str()
        .rsplit_once('@')
        .unwrap_or(("", authority.as_str()));
    match host
        .strip_prefix(authority.host())
        .and_then(|rest| rest.strip_prefix(':'))
    {
        None | Some("") => Ok(None),
        Some(text) => match text.parse() {
            Ok(port) if port > 0 => Ok(Some(port)),
            _ => Err(format!("has the port {text:?}; ports are from 1 to 65535")),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::{bypasses, choose};
    use crate::client::Environment;

    #[track_caller]
    fn check_bypass(no_proxy: &str, host: &str, port: u16, expected: bool) {
        assert_eq!(
            bypasses(no_proxy, host, port),
            expected,
            "NO_PROXY={no_proxy:?} {host}:{port}"
        );
    }

    #[test]
    fn no_proxy_is_read_as_go_reads_it() {
        for (no_proxy, host, port, expected) in [
            ("", "10.96.0.1", 443, false),
            ("", "localhost", 443, true),
            ("", "127.0.0.1", 443, true),
            ("", "127.1.2.3", 443, true),
            ("", "[::1]", 6443, true),
            ("*", "anything.example", 443, true),
            ("10.0.0.0/8", "10.96.0.1", 443, true),
            ("10.0.0.0/8", "11.96.0.1", 443, false),
            ("10.0.0.0/8", "ten.example", 443, false),
            ("fd00::/8", "[fd00::1]", 443, true),
            ("10.96.0.1", "10.96.0.1", 443, true),
            ("10.96.0.1:443", "10.96.0.1", 443, true),
            ("10.96.0.1:443", "10.96.0.1", 6443, false),
            ("fd00::1", "[fd00::1]", 443, true),
            ("[fd00::1]:443", "[fd00::1]", 443, true),
            ("[fd00::1]:443", "[fd00::1]", 6443, false),
            ("example.com", "example.com", 443, true),
            ("example.com", "api.example.com", 443, true),
            ("example.com", "notexample.com", 443, false),
            (".example.com", "api.example.com", 443, true),
            (".example.com", "example.com", 443, false),
            ("*.example.com", "api.example.com", 443, true),
            ("*.example.com", "example.com", 443, false),
            ("EXAMPLE.com", "Api.Example.COM", 443, true),
            ("example.com:443", "api.example.com", 6443, false),
            (" a.example , 10.0.0.0/8 ,", "10.1.1.1", 443, true),
            (",,", "10.1.1.1", 443, false),
            ("1", "10.0.0.1", 443, false),
        ] {
            check_bypass(no_proxy, host, port, expected);
        }
    }

    #[track_caller]
    fn check(vars: &[(&str, &str)], scheme: &str, expected: Option<&str>) {
        let environment = Environment::new(vars.iter().copied(), "");
        let proxy = choose(None, &environment, scheme, "cluster.example", 443);
        let proxy = proxy.expect("the proxies are good");
        let proxy = proxy.map(|proxy| format!("{}:{}", proxy.host(), proxy.port()));
        assert_eq!(proxy.as_deref(), expected, "{vars:?}");
    }

    #[test]
    fn the_environment_sets_the_proxy_by_scheme() {
        let https = ("HTTPS_PROXY", "http://secure:3128");
        let http = ("HTTP_PROXY", "plain:8080");
        let all = ("ALL_PROXY", "socks5://any");
        check(&[], "https", None);
        check(&[https, http, all], "https", Some("secure:3128"));
        check(&[https, http, all], "http", Some("plain:8080"));
        check(&[http], "https", None);
        check(&[all], "https", Some("any:1080"));
        check(&[("https_proxy", "lower:1")], "https", Some("lower:1"));
        check(&[("HTTPS_PROXY", "")], "https", None);
        let empty_and_lower = [("HTTPS_PROXY", " "), ("https_proxy", "lower:1")];
        check(&empty_and_lower, "https", Some("lower:1"));
        check(&[https, ("NO_PROXY", ""), ("no_proxy", "*")], "https", None);
        check(&[https, ("NO_PROXY", ".example")], "https", None);
        check(&[https, ("no_proxy", "example")], "https", None);
        check(
            &[https, ("NO_PROXY", "other")],
            "https",
            Some("secure:3128"),
        );
    }

    #[test]
    fn proxy_url_wins_over_everything() {
        let environment = Environment::new([("HTTPS_PROXY", "env:1"), ("NO_PROXY", "*")], "");
        let proxy = choose(Some("HTTPS://own"), &environment, "https", "127.0.0.1", 443);
        let proxy = proxy.expect("it is good").expect("it is configured");
        assert_eq!((proxy.host(), proxy.port()), ("own", 443));
    }

    #[test]
    fn an_invalid_proxy_is_reported_without_its_password() {
        let empty = Environment::new([], "");
        for url in [
            "ftp://user:hunter2@proxy",
            "http://user:hunter2@",
            "http://user:hunter2@proxy:99999",
        ] {
            let error = choose(Some(url), &empty, "https", "a", 443).expect_err("it is bad");
            assert!(
                error.contains("proxy-url") && !error.contains("hunter2"),
                "{error}"
            );
        }
    }
}
