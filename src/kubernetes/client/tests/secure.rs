//! TLS: which servers the client trusts, its own certificate, and the stop signal.

use std::fmt::Write as _;
use std::fs;
use std::io::{Read, Write as _};
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::SingleCertAndKey;
use rustls::{
    DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig, SignatureScheme,
};

use super::server::{Reply, Server, chunked, response};
use super::{carried_by, check_within, client, stopped_while, unlimited};
use crate::client::{
    Client, ClientConfig, ClientError, ConfigError, ConfigSource, DirectSource, Environment,
    Request,
};
use crate::stdx::stop::Stop;
use crate::stdx::thread::spawn;
use crate::stdx::tls::{certified_key, provider};

/// A certificate authority for one test.
pub(in crate::client) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub(in crate::client) fn new() -> Self {
        let key = KeyPair::generate().expect("there is enough chance");
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params
            .distinguished_name
            .push(DnType::CommonName, "test authority");
        let issuer = CertifiedIssuer::self_signed(params, key);
        Self(issuer.expect("the parameters are good"))
    }

    pub(in crate::client) fn pem(&self) -> String {
        self.0.pem()
    }

    /// Issues a certificate and key for these names, in PEM.
    pub(in crate::client) fn issue(&self, names: &[&str]) -> (String, String) {
        let key = KeyPair::generate().expect("there is enough chance");
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let params = CertificateParams::new(names).expect("the names are good");
        let certificate = params.signed_by(&key, &self.0);
        let certificate = certificate.expect("the parameters are good");
        (certificate.pem(), key.serialize_pem())
    }

    /// A server configuration with a certificate for `names`. With `clients`, every client needs a
    /// certificate of that authority.
    pub(super) fn server(&self, names: &[&str], clients: Option<&Self>) -> Arc<ServerConfig> {
        let provider = provider();
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .expect("the provider knows them");
        let builder = match clients {
            None => builder.with_no_client_auth(),
            Some(authority) => {
                let mut roots = RootCertStore::empty();
                roots.add(authority.0.der().clone()).expect("it is good");
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                builder.with_client_cert_verifier(verifier.build().expect("it has roots"))
            }
        };
        let (certificate, key) = self.issue(names);
        let certified = certified_key(
            ("certificate", certificate.as_bytes()),
            ("key", key.as_bytes()),
        );
        let certified = certified.expect("they belong together");
        Arc::new(builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(certified))))
    }
}

/// A kubeconfig for the server at `url` with these lines in its cluster and its user.
pub(super) fn kubeconfig(url: &str, cluster: &[(&str, &str)], user: &[(&str, &str)]) -> String {
    let mut text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: it\n\
         contexts:\n- name: it\n  context: {{cluster: it, user: me}}\n\
         clusters:\n- name: it\n  cluster:\n    server: {url}\n"
    );
    for (name, value) in cluster {
        writeln!(text, "    {name}: {value}").expect("strings take all");
    }
    text.push_str("users:\n- name: me\n  user:\n    as-groups: []\n");
    for (name, value) in user {
        writeln!(text, "    {name}: {value}").expect("strings take all");
    }
    text
}

pub(super) fn load(text: &str) -> Result<ClientConfig, ConfigError> {
    let file = tempfile::NamedTempFile::new().expect("there is room");
    std::fs::write(file.path(), text).expect("there is room");
    let source = ConfigSource {
        kubeconfig: Some(file.path().to_owned()),
        ..ConfigSource::default()
    };
    ClientConfig::load_from(&source, &Environment::new([], ""))
}

fn client_with(url: &str, cluster: &[(&str, &str)], user: &[(&str, &str)]) -> (Client, Stop) {
    let config = load(&kubeconfig(url, cluster, user));
    client(&config.expect("the kubeconfig is good"), &unlimited())
}

fn ok() -> impl Fn(&super::server::Received) -> Reply + Send + Sync {
    |_| Reply::Write(response(200, "", "ok"))
}

pub(super) fn base64(text: &str) -> String {
    STANDARD.encode(text)
}

const CA_DATA: &str = "certificate-authority-data";
const CERTIFICATE: &str = "client-certificate-data";
const KEY: &str = "client-key-data";

#[test]
fn every_authority_of_the_bundle_is_trusted() {
    let (foreign, authority) = (Authority::new(), Authority::new());
    let server = Server::tls(authority.server(&["127.0.0.1"], None), ok());
    let bundle = base64(&format!(
        "{}\n# a comment\n{}",
        foreign.pem(),
        authority.pem()
    ));
    let (client, _) = client_with(&server.url(), &[(CA_DATA, &bundle)], &[]);
    for _ in 0..3 {
        client.send(&Request::get("/a")).expect("it is trusted");
    }
    assert!(
        server
            .remaining()
            .iter()
            .all(|request| request.connection == 0)
    );
}

#[test]
fn a_head_without_end_is_not_taken_for_a_closed_connection() {
    let endless = |_: &super::server::Received| {
        let headers = format!("X: {}\r\n", "a".repeat(70_000));
        Reply::Write(response(200, &headers, ""))
    };
    let authority = Authority::new();
    let ca = base64(&authority.pem());
    let secure = Server::tls(authority.server(&["127.0.0.1"], None), endless);
    for (server, cluster) in [
        (Server::plain(endless), &[][..]),
        (secure, &[(CA_DATA, ca.as_str())]),
    ] {
        let (client, _) = client_with(&server.url(), cluster, &[]);
        let error = client
            .send(&Request::get("/a"))
            .expect_err("it is too long");
        let text = error.to_string();
        assert!(text.contains("no end of the response's head"), "{text}");
        assert!(!error.is_closed(), "{text}");
    }
}

#[test]
fn a_server_of_another_authority_is_rejected_with_a_reason() {
    let (foreign, authority) = (Authority::new(), Authority::new());
    let server = Server::tls(authority.server(&["127.0.0.1"], None), ok());
    let ca = base64(&foreign.pem());
    let (client, _) = client_with(&server.url(), &[(CA_DATA, &ca)], &[("token", "t")]);
    let post = Request::post("/a").body("application/json", "{}");
    let error = client.send(&post).expect_err("it is another authority");
    assert!(error.is_unsent() && !error.is_connection_refused());
    assert!(error.to_string().contains("not signed by"), "{error}");
    assert_eq!(server.remaining().len(), 0);
}

#[test]
fn tls_server_name_is_verified_in_the_certificate() {
    let authority = Authority::new();
    let server = Server::tls(authority.server(&["kubernetes.example"], None), ok());
    let ca = base64(&authority.pem());
    let (client, _) = client_with(&server.url(), &[(CA_DATA, &ca)], &[]);
    let error = client
        .send(&Request::get("/a"))
        .expect_err("its name is another");
    assert!(error.to_string().contains("it is valid for"), "{error}");

    let name = ("tls-server-name", "kubernetes.example");
    let (client, _) = client_with(&server.url(), &[(CA_DATA, &ca), name], &[]);
    client.send(&Request::get("/a")).expect("its name is this");
    let request = server.next();
    assert_eq!(request.server_name.as_deref(), Some("kubernetes.example"));
    let address = server.url();
    assert_eq!(
        request.all("host"),
        [address.strip_prefix("https://").expect("it is")]
    );
}

/// `explain --server` and its like use no kubeconfig.
#[test]
fn errors_of_a_server_named_by_a_flag_advise_flags() {
    let (foreign, authority) = (Authority::new(), Authority::new());
    let folder = tempfile::tempdir().expect("there is room");
    let error = |url: &str, ca: &Authority| {
        let file = folder.path().join("ca.crt");
        fs::write(&file, ca.pem()).expect("there is room");
        let source = DirectSource {
            url: url.to_owned(),
            certificate_authority: Some(file),
            ..DirectSource::default()
        };
        let config = ClientConfig::direct(&source).expect("the flags are good");
        let (client, _) = client(&config, &unlimited());
        let error = client.send(&Request::get("/a")).expect_err("no TLS");
        assert!(!error.to_string().contains("kubeconfig"), "{error}");
        error.to_string()
    };
    let other = Server::tls(authority.server(&["other.example"], None), ok());
    let text = error(&other.url(), &foreign);
    assert!(
        text.contains("(--certificate-authority=FILE names another, --insecure"),
        "{text}"
    );
    let text = error(&other.url(), &authority);
    assert!(
        text.contains("(--insecure-skip-tls-verify accepts any)"),
        "{text}"
    );
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    let address = listener.local_addr().expect("it is bound");
    let thread = spawn("t-plain", &Stop::new(), move || {
        let (mut stream, _) = listener.accept().expect("the client comes");
        let written = stream.write_all(&response(400, "", "no TLS here"));
        written.expect("the client reads");
        stream.read_to_end(&mut Vec::new()).unwrap_or_default();
    });
    let text = error(&format!("https://{address}"), &authority);
    assert!(text.contains("(--server=http://...)"), "{text}");
    thread.join().expect("it does not panic");
}

#[test]
fn insecure_trusts_any_server() {
    let version_1 = include_str!("../../../../tests/data/tls/version-1.pem");
    let identity = base64(version_1);
    let user = [(CERTIFICATE, identity.as_str()), (KEY, &identity)];
    for config in [
        Authority::new().server(&["elsewhere"], None),
        server_of(version_1.as_bytes()),
    ] {
        let server = Server::tls(config, ok());
        let insecure = [("insecure-skip-tls-verify", "true")];
        let (client, _) = client_with(&server.url(), &insecure, &user);
        client.send(&Request::get("/a")).expect("anyone is trusted");
    }
}

#[test]
fn a_client_certificate_is_presented() {
    let authority = Authority::new();
    let server = Server::tls(authority.server(&["127.0.0.1"], Some(&authority)), ok());
    let ca = base64(&authority.pem());
    let (certificate, key) = authority.issue(&["me"]);
    let (certificate, key) = (base64(&certificate), base64(&key));
    let user = [(CERTIFICATE, certificate.as_str()), (KEY, key.as_str())];
    let (client, _) = client_with(&server.url(), &[(CA_DATA, &ca)], &user);
    client
        .send(&Request::get("/a"))
        .expect("the server knows us");

    let (client, _) = client_with(&server.url(), &[(CA_DATA, &ca)], &[]);
    let error = client
        .send(&Request::get("/a"))
        .expect_err("the server does not know us");
    assert!(
        error.status().is_none() && error.to_string().contains("requires a client certificate"),
        "{error}"
    );
}

/// A server configuration from PEM that accepts any client certificate without parsing it.
fn server_of(pem: &[u8]) -> Arc<ServerConfig> {
    let certified = certified_key(("certificate", pem), ("key", pem)).expect("they are good");
    let builder = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .expect("the provider knows them");
    let builder = builder.with_client_cert_verifier(Arc::new(RequireAny));
    Arc::new(builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(certified))))
}

#[derive(Debug)]
struct RequireAny;

impl ClientCertVerifier for RequireAny {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider()
            .signature_verification_algorithms
            .supported_schemes()
    }
}

#[test]
fn certificates_of_version_1_are_presented_and_p521_is_trusted() {
    let p521 = include_str!("../../../../tests/data/tls/p521.pem");
    let version_1 = include_str!("../../../../tests/data/tls/version-1.pem");
    let authority = include_str!("../../../../tests/data/tls/p521-authority.pem");
    let server = Server::tls(server_of(p521.as_bytes()), ok());
    let ca = base64(authority);
    for identity in [p521, version_1] {
        let identity = base64(identity);
        let user = [(CERTIFICATE, identity.as_str()), (KEY, &identity)];
        let (client, _) = client_with(&server.url(), &[(CA_DATA, &ca)], &user);
        client.send(&Request::get("/a")).expect("both are accepted");
    }
}

#[test]
fn a_server_may_present_a_certificate_from_the_authority_list() {
    let own = |edit: &dyn Fn(&mut CertificateParams)| {
        let key = KeyPair::generate().expect("there is enough chance");
        let names = vec!["127.0.0.1".to_owned()];
        let mut params = CertificateParams::new(names).expect("the names are good");
        params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        edit(&mut params);
        let certificate = params.self_signed(&key).expect("the parameters are good");
        certificate.pem() + &key.serialize_pem()
    };
    let tried = |pem: &str, ca: &str, name: &str| {
        let server = Server::tls(server_of(pem.as_bytes()), ok());
        let identity = base64(pem);
        let user = [(CERTIFICATE, identity.as_str()), (KEY, &identity)];
        let ca = base64(ca);
        let cluster = [(CA_DATA, ca.as_str()), ("tls-server-name", name)];
        let (client, _) = client_with(&server.url(), &cluster, &user);
        let result = client.send(&Request::get("/a"));
        result.map(drop).map_err(|error| error.to_string())
    };
    let here = "127.0.0.1";
    let good = own(&|_| ());
    assert_eq!(tried(&good, &good, here), Ok(()));
    let other = own(&|_| ());
    for (pem, ca, name, problem) in [
        (&good, &other, here, "it is a CA certificate (CA:TRUE)"),
        (
            &good,
            &good,
            "a.example",
            "it is valid for 127.0.0.1, not for a.example",
        ),
        (
            &own(&|params| params.not_after = rcgen::date_time_ymd(2001, 1, 1)),
            &String::new(),
            here,
            "expired",
        ),
        (
            &own(&|params| params.not_before = rcgen::date_time_ymd(2999, 1, 1)),
            &String::new(),
            here,
            "not valid yet",
        ),
        (
            &own(&|params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth]),
            &String::new(),
            here,
            "not that of a server",
        ),
    ] {
        let ca = if ca.is_empty() { pem } else { ca };
        let error = tried(pem, ca, name).expect_err(problem);
        assert!(error.contains(problem), "{error}");
    }
}

#[test]
fn a_key_of_another_certificate_is_an_error_at_load() {
    let authority = Authority::new();
    let certificate = base64(&authority.issue(&["me"]).0);
    let key = base64(&authority.issue(&["me"]).1);
    let user = [(CERTIFICATE, certificate.as_str()), (KEY, key.as_str())];
    let ca = base64(&authority.pem());
    let config = load(&kubeconfig("https://127.0.0.1", &[(CA_DATA, &ca)], &user));
    let error = config.expect_err("the key is another's").to_string();
    assert!(
        error.contains("does not belong") && !error.contains(&key),
        "{error}"
    );
}

#[test]
fn stop_ends_a_blocked_watch_read_over_tls() {
    let authority = Authority::new();
    let reply = |_: &_| Reply::WriteAndHold(chunked(&["{}\n"]));
    let server = Server::tls(authority.server(&["127.0.0.1"], None), reply);
    let ca = base64(&authority.pem());
    let (client, stop) = client_with(&server.url(), &[(CA_DATA, &ca)], &[]);
    let mut stream = client
        .stream_client()
        .open_watch(&Request::get("/a"))
        .expect("it opens");
    let mut line = [0; 3];
    stream.read_exact(&mut line).expect("the line is here");
    let error = stopped_while(&stop, || {}, move || stream.read(&mut [0])).expect_err("it is cut");
    assert!(matches!(carried_by(error), ClientError::Stopped));
}

#[test]
fn stop_ends_a_tls_handshake_that_hangs() {
    // The server accepts connections and sends nothing.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    let url = format!("https://{}", listener.local_addr().expect("it is bound"));
    let insecure = [("insecure-skip-tls-verify", "true")];
    let (client, stop) = client_with(&url, &insecure, &[]);
    let streams = client.stream_client();
    let mut kept = None;
    let blocked = || kept = listener.accept().ok();
    let result = stopped_while(&stop, blocked, move || {
        streams.open_watch(&Request::get("/a"))
    });
    assert!(matches!(result, Err(ClientError::Stopped)), "{result:?}");
}

/// A leader's last request must not outlast its right to write by the time to connect.
#[test]
fn a_short_timeout_limits_connecting_too() {
    // The server accepts connections and sends nothing.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    let url = format!("https://{}", listener.local_addr().expect("it is bound"));
    let insecure = [("insecure-skip-tls-verify", "true")];
    let (client, _) = client_with(&url, &insecure, &[]);
    let request = Request::get("/a").timeout(Duration::from_millis(50)).once();
    check_within(Duration::from_secs(5), || {
        let error = client.send(&request).expect_err("nothing comes");
        assert!(error.is_timeout() && error.is_unsent(), "{error:?}");
    });
}
