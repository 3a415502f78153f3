//! The handshake with a SOCKS 5 proxy, which resolves the server's name and connects to it
//! (RFC 1928, RFC 1929).

use std::io::{self, ErrorKind, Read, Write};
use std::net::IpAddr;

use ureq::Proxy;

/// What a proxy replies if it has not connected, from 1.
const REPLIES: [&str; 8] = [
    "general failure",
    "the connection is not allowed",
    "the network is unreachable",
    "the host is unreachable",
    "the connection was refused",
    "the time to live has expired",
    "it does not know this command",
    "it does not know this type of address",
];

/// Has `proxy`, on `stream`, connect to `host`.
pub(super) fn connect(
    stream: &mut (impl Read + Write),
    proxy: &Proxy,
    (host, port): (&str, u16),
) -> io::Result<()> {
    let user = proxy.username();
    // Without authentication, or with user and password if the proxy's URL has them.
    let methods: &[u8] = if user.is_some() { &[2, 0, 2] } else { &[1, 0] };
    stream.write_all(&[&[5], methods].concat())?;
    match (read(stream)?, user) {
        ([5, 0], _) => {}
        ([5, 2], Some(user)) => {
            let password = proxy.password().unwrap_or_default();
            stream.write_all(&[&[1][..], &counted(user)?, &counted(password)?].concat())?;
            let [_, 0] = read(stream)? else {
                return Err(failed("does not accept user and password"));
            };
        }
        ([5, _], _) => return Err(failed("accepts no authentication that its URL has")),
        _ => return Err(failed("does not speak SOCKS 5")),
    }
    let address = match host.trim_matches(['[', ']']).parse() {
        Ok(IpAddr::V4(ip)) => [&[1][..], &ip.octets()].concat(),
        Ok(IpAddr::V6(ip)) => [&[4][..], &ip.octets()].concat(),
        Err(_) => [&[3][..], &counted(host)?].concat(),
    };
    stream.write_all(&[&[5, 1, 0], &*address, &port.to_be_bytes()].concat())?;
    let [5, reply, _, kind] = read(stream)? else {
        return Err(failed("does not speak SOCKS 5"));
    };
    if reply > 0 {
        let why = REPLIES.get(usize::from(reply) - 1);
        let why = why.unwrap_or(&"for a reason unknown here");
        return Err(failed(&format!("has not connected: {why}")));
    }
    // The address and the port that the proxy connects from.
    let length = match kind {
        1 => 4,
        4 => 16,
        _ => read::<1>(stream)?[0].into(),
    };
    fill(stream, &mut vec![0; length + 2])
}

fn read<const N: usize>(stream: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    fill(stream, &mut bytes)?;
    Ok(bytes)
}

fn fill(stream: &mut impl Read, bytes: &mut [u8]) -> io::Result<()> {
    let read = stream.read_exact(bytes);
    read.map_err(|error| match error.kind() {
        ErrorKind::UnexpectedEof => failed("has closed the connection"),
        _ => error,
    })
}

fn counted(text: &str) -> io::Result<Vec<u8>> {
    let Ok(length) = u8::try_from(text.len()) else {
        return Err(failed("takes 255 bytes of a name or password at most"));
    };
    Ok([&[length], text.as_bytes()].concat())
}

fn failed(why: &str) -> io::Error {
    io::Error::other(format!("the SOCKS proxy {why}"))
}

#[cfg(test)]
mod tests {
    use std::io::{self, Cursor, Read, Write};

    use ureq::Proxy;

    use super::connect;

    /// What a proxy says, and what it is told.
    struct Script(Cursor<Vec<u8>>, Vec<u8>);

    impl Read for Script {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.0.read(buffer)
        }
    }

    impl Write for Script {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.1.write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn told(says: &[u8], host: &str) -> Result<Vec<u8>, String> {
        let proxy = Proxy::new("socks5h://u:p@proxy").expect("it is a URL");
        let mut script = Script(Cursor::new(says.to_vec()), Vec::new());
        let connected = connect(&mut script, &proxy, (host, 443));
        connected.map_err(|error| error.to_string())?;
        assert_eq!(script.0.position(), says.len() as u64, "all is read");
        Ok(script.1)
    }

    #[test]
    fn a_proxy_is_told_the_host_as_it_is_named() {
        let says = [5, 0, 5, 0, 0, 1, 1, 2, 3, 4, 0, 80];
        let check = |host: &str, address: &[u8]| {
            let expected = [&[5, 2, 0, 2, 5, 1, 0], address, &[1, 187]].concat();
            assert_eq!(told(&says, host), Ok(expected), "{host}");
        };
        check("10.0.0.1", &[1, 10, 0, 0, 1]);
        check(
            "[::1]",
            &[4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
        );
        check("web", b"\x03\x03web");
        let v6 = [&[5, 0, 5, 0, 0, 4][..], &[0; 18]].concat();
        let name = [&[5, 0, 5, 0, 0, 3, 2][..], &[0; 4]].concat();
        assert!(told(&v6, "web").is_ok() && told(&name, "web").is_ok());
    }

    #[test]
    fn a_proxy_that_does_not_connect_is_described() {
        let long = "a".repeat(256);
        for (says, host, expected) in [
            (&b"HT"[..], "web", "does not speak SOCKS 5"),
            (
                &[5, 255],
                "web",
                "accepts no authentication that its URL has",
            ),
            (&[5, 2, 1, 1], "web", "does not accept user and password"),
            (
                &[5, 0, 5, 5, 0, 1],
                "web",
                "has not connected: the connection was refused",
            ),
            (
                &[5, 0, 5, 9, 0, 1],
                "web",
                "has not connected: for a reason unknown here",
            ),
            (
                &[5, 0],
                &long,
                "takes 255 bytes of a name or password at most",
            ),
        ] {
            let expected = format!("the SOCKS proxy {expected}");
            assert_eq!(told(says, host), Err(expected));
        }
        for says in [&[5][..], &[5, 0, 5, 0, 0], &[5, 0, 5, 0, 0, 1, 10, 0]] {
            let closed = "the SOCKS proxy has closed the connection";
            assert_eq!(told(says, "web"), Err(closed.to_owned()), "{says:?}");
        }
    }
}
