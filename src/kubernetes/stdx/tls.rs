//! Certificates and keys for both ends of TLS, read as Go reads them: the label of a key's PEM
//! block says nothing about its format, blocks that cannot be decoded are skipped, and the version
//! of a client's own certificate does not matter. Pure.

mod p521;

use std::sync::{Arc, LazyLock};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SigningKey};

use super::certificate::Certificate;

/// The cryptography of every connection: ring's, and ECDSA with P-521, which ring lacks.
pub fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: LazyLock<Arc<CryptoProvider>> =
        LazyLock::new(|| Arc::new(p521::added_to(rustls::crypto::ring::default_provider())));
    Arc::clone(&PROVIDER)
}

/// The certificates in `pem`. `name` is for the error.
///
/// # Errors
/// If there is none.
pub fn certificates(name: &str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let text = String::from_utf8_lossy(pem);
    let blocks = blocks(&text).filter(|block| block.label == "CERTIFICATE");
    let all: Vec<_> = blocks.map(|block| block.der.into()).collect();
    if all.is_empty() {
        return Err(format!("{name} holds no certificate in PEM"));
    }
    Ok(all)
}

/// A certificate, with its intermediates, and its key, each as name and PEM.
///
/// # Errors
/// What is wrong with them, with their names.
pub fn certified_key(
    (name, certificate): (&str, &[u8]),
    (key_name, key): (&str, &[u8]),
) -> Result<CertifiedKey, String> {
    let chain = certificates(name, certificate)?;
    let own = &chain[0];
    Certificate::parse(own).map_err(|error| format!("{name} cannot be used: {error}"))?;
    let key = private_key(key_name, key)?;
    // rustls compares the keys too, but does not parse certificates of X.509 version 1.
    if let Some(public) = key.public_key()
        && !own
            .windows(public.len())
            .any(|part| part == public.as_ref())
    {
        return Err(format!("{key_name} does not belong to {name}"));
    }
    Ok(CertifiedKey::new(chain, key))
}

/// The first private key in `pem` (Go `crypto/tls/tls.go:X509KeyPair`, `parsePrivateKey`).
fn private_key(name: &str, pem: &[u8]) -> Result<Arc<dyn SigningKey>, String> {
    let text = String::from_utf8_lossy(pem);
    let block = blocks(&text).find(|block| block.label.ends_with("PRIVATE KEY"));
    let block = block.ok_or_else(|| format!("{name} holds no private key in PEM"))?;
    if block.is_encrypted {
        return Err(format!(
            "{name} is encrypted: decrypt it with `openssl pkey -in KEY -out DECRYPTED`, and \
             protect the new file by its mode"
        ));
    }
    let der = block.der.as_slice();
    let formats: [PrivateKeyDer<'_>; 3] = [
        PrivateKeyDer::Pkcs1(der.into()),
        PrivateKeyDer::Pkcs8(der.into()),
        PrivateKeyDer::Sec1(der.into()),
    ];
    let loads = |key: PrivateKeyDer<'_>| provider().key_provider.load_private_key(key.clone_key());
    let key = formats.into_iter().find_map(|key| loads(key).ok());
    key.ok_or_else(|| {
        format!(
            "{name} cannot be used: it must be RSA with 2048 to 4096 bits, P-256, P-384, P-521 or \
             Ed25519; if it is one of these, write it anew with `openssl pkey -in KEY -out NEW`"
        )
    })
}

struct Block<'a> {
    label: &'a str,
    is_encrypted: bool,
    der: Vec<u8>,
}

/// The blocks in PEM that can be decoded.
fn blocks(pem: &str) -> impl Iterator<Item = Block<'_>> {
    let blocks = pem.split("-----BEGIN ").skip(1);
    blocks.filter_map(|block| {
        let (label, rest) = block.split_once("-----")?;
        let (body, _) = rest.split_once(&format!("-----END {label}-----"))?;
        let is_header = |line: &&str| line.contains(':');
        let is_encrypted = |text: &str| text.contains("ENCRYPTED");
        let data = body.lines().filter(|line| !is_header(line));
        let data: String = data.flat_map(str::split_whitespace).collect();
        Some(Block {
            label,
            is_encrypted: is_encrypted(label) || body.lines().filter(is_header).any(is_encrypted),
            der: STANDARD.decode(data).ok()?,
        })
    })
}

/// The text of an error of the TLS library, with the names of its variants as words.
pub fn in_words(error: &impl ToString) -> String {
    let mut words = String::new();
    let mut after_lower = false;
    for letter in error.to_string().chars() {
        if after_lower && letter.is_ascii_uppercase() {
            words.push(' ');
            words.push(letter.to_ascii_lowercase());
        } else {
            words.push(letter);
        }
        after_lower = letter.is_ascii_lowercase();
    }
    words
}

#[cfg(test)]
mod tests {
    use super::{certificates, certified_key, in_words};

    const P521: &[u8] = include_bytes!("../../../tests/data/tls/p521.pem");
    const VERSION_1: &[u8] = include_bytes!("../../../tests/data/tls/version-1.pem");
    const PKCS1: &str = include_str!("../../../tests/data/tls/pkcs1.key");

    fn problem(certificate: &[u8], key: &[u8]) -> String {
        let certified = certified_key(("C", certificate), ("K", key));
        certified.map(drop).expect_err("it cannot be used")
    }

    #[test]
    fn keys_are_read_whatever_their_label_says() {
        let sec1 = include_str!("../../../tests/data/tls/p521-sec1.key");
        for label in [
            "EC PRIVATE KEY",
            "PRIVATE KEY",
            "RSA PRIVATE KEY",
            "ANY PRIVATE KEY",
        ] {
            let key = sec1.replace("EC PRIVATE KEY", label);
            certified_key(("C", P521), ("K", key.as_bytes())).expect(label);
            let rsa = PKCS1.replace("RSA PRIVATE KEY", label);
            assert_eq!(
                problem(P521, rsa.as_bytes()),
                "K does not belong to C",
                "{label}"
            );
        }
    }

    #[test]
    fn a_key_that_cannot_be_used_is_an_error_with_a_remedy() {
        let x25519 = "-----BEGIN PRIVATE KEY-----\n\
                      MC4CAQAwBQYDK2VuBCIEIGCmLZajjULW41FE8hoE3WCkDQLl063Rt8Qm5qC4A7dW\n\
                      -----END PRIVATE KEY-----\n";
        let problem = problem(P521, x25519.as_bytes());
        assert!(
            problem.contains("K cannot be used") && problem.contains("P-521"),
            "{problem}"
        );
    }

    #[test]
    fn an_encrypted_key_is_named_as_such() {
        for key in [
            include_str!("../../../tests/data/tls/encrypted-pkcs8.key"),
            include_str!("../../../tests/data/tls/encrypted-sec1.key"),
            &include_str!("../../../tests/data/tls/encrypted-sec1.key").replace('\n', "\r\n"),
        ] {
            let problem = problem(P521, key.as_bytes());
            assert!(
                problem.starts_with("K is encrypted: decrypt it with `openssl"),
                "{problem}"
            );
        }
    }

    #[test]
    fn a_key_of_another_certificate_is_an_error() {
        certified_key(("C", VERSION_1), ("K", VERSION_1)).expect("they belong together");
        assert_eq!(problem(VERSION_1, P521), "K does not belong to C");
        assert_eq!(problem(P521, VERSION_1), "K does not belong to C");
    }

    #[test]
    fn a_block_that_cannot_be_decoded_does_not_spoil_the_others() {
        let good = String::from_utf8_lossy(P521);
        let bad = "-----BEGIN CERTIFICATE-----\nMII*\n-----END CERTIFICATE-----\n";
        let cut = "-----BEGIN CERTIFICATE-----\nMIIB\n";
        for bundle in [
            format!("{bad}{good}"),
            format!("{good}{bad}"),
            format!("{cut}# text\n{good}"),
        ] {
            let all = certificates("it", bundle.as_bytes());
            assert_eq!(all.expect("one is good").len(), 1, "{bundle}");
        }
        let none = certificates("it", bad.as_bytes()).expect_err("none is good");
        assert_eq!(none, "it holds no certificate in PEM");
    }

    #[test]
    fn names_of_variants_become_words() {
        let text = in_words(&"peer misbehaved: MissingKeyShare");
        assert_eq!(text, "peer misbehaved: Missing key share");
    }
}
