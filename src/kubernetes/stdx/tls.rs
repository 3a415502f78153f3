//! Certificates and keys for both ends of TLS, read as Go reads them: the label of a key's PEM
//! block says nothing about its format, blocks that cannot be decoded are skipped, and the version
//! of a client's own certificate does not matter. Pure.

mod p521;

use std::sync::{Arc, LazyLock};
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use der::asn1::{AnyRef, ObjectIdentifier, OctetStringRef};
use der::{Decode, Encode as _, Length, Reader as _, SliceReader, Tag, TagNumber, Tagged as _};
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SigningKey};

/// The cryptography of every connection: ring's, and ECDSA with P-521, which ring lacks.
pub fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: LazyLock<Arc<CryptoProvider>> =
        LazyLock::new(|| Arc::new(p521::added_to(rustls::crypto::ring::default_provider())));
    Arc::clone(&PROVIDER)
}

/// As [`provider`], for clients, which also offer P-521 for the key exchange: a TLS 1.2 server
/// presents a certificate with a P-521 key only to a client that offers this group.
pub fn client_provider() -> CryptoProvider {
    let mut provider = CryptoProvider::clone(&provider());
    provider.kx_groups.push(&p521::Group);
    provider
}

/// The certificates in `pem`. `name` is for the error.
pub fn certificates(name: &str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let text = String::from_utf8_lossy(pem);
    let blocks = blocks(&text).filter(|block| block.label == "CERTIFICATE");
    let all: Vec<_> = blocks.map(|block| block.der.into()).collect();
    if all.is_empty() {
        return Err(format!("{name} contains no PEM certificate"));
    }
    Ok(all)
}

/// Parses a certificate with its intermediates, and its private key. Each argument is a name, for
/// errors, and PEM.
pub fn certified_key(
    (name, certificate): (&str, &[u8]),
    (key_name, key): (&str, &[u8]),
) -> Result<CertifiedKey, String> {
    let chain = certificates(name, certificate)?;
    let own = &chain[0];
    Certificate::parse(own).map_err(|error| format!("{name} cannot be used: {error}"))?;
    let key = private_key(key_name, key, (name, own))?;
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

/// The first private key in `pem`, of this certificate (Go `crypto/tls/tls.go:X509KeyPair`,
/// `parsePrivateKey`).
fn private_key(
    name: &str,
    pem: &[u8],
    (certificate_name, certificate): (&str, &[u8]),
) -> Result<Arc<dyn SigningKey>, String> {
    let text = String::from_utf8_lossy(pem);
    let block = blocks(&text).find(|block| block.label.ends_with("PRIVATE KEY"));
    let block = block.ok_or_else(|| format!("{name} contains no PEM private key"))?;
    if block.is_encrypted {
        return Err(format!(
            "{name} is encrypted: decrypt it with `openssl pkey -in KEY -out DECRYPTED`, and \
             restrict its mode (0600)"
        ));
    }
    let lacking = ec_secret_without_public_key(&block.der);
    let completed = lacking.and_then(|secret| with_public_key(secret, certificate).ok()?);
    let der = completed.as_deref().unwrap_or(&block.der);
    let formats: [PrivateKeyDer<'_>; 3] = [
        PrivateKeyDer::Pkcs1(der.into()),
        PrivateKeyDer::Pkcs8(der.into()),
        PrivateKeyDer::Sec1(der.into()),
    ];
    let loads = |key: PrivateKeyDer<'_>| provider().key_provider.load_private_key(key.clone_key());
    let key = formats.into_iter().find_map(|key| loads(key).ok());
    key.ok_or_else(|| match completed {
        Some(_) => format!("{name} does not belong to {certificate_name}"),
        None => format!(
            "{name} cannot be used: it must be RSA with 2048 to 4096 bits, P-256, P-384, P-521 or \
             Ed25519; if it is one of these, re-encode it with `openssl pkey -in KEY -out NEW`"
        ),
    })
}

/// The secret in an EC key (RFC 5915, also within PKCS#8) that lacks the optional public key.
fn ec_secret_without_public_key(der: &[u8]) -> Option<&[u8]> {
    let parts = AnyRef::from_der(der).and_then(|key| key.sequence(elements));
    match *parts.ok()? {
        [_, algorithm, key, ..]
            if algorithm.tag() == Tag::Sequence && key.tag() == Tag::OctetString =>
        {
            ec_secret_without_public_key(key.value())
        }
        [_, secret, ref options @ ..] if secret.tag() == Tag::OctetString => {
            let has_public = options.iter().any(|option| option.tag() == PUBLIC_KEY);
            (!has_public).then(|| secret.value())
        }
        _ => None,
    }
}

/// The optional public key of an EC key.
const PUBLIC_KEY: Tag = Tag::ContextSpecific {
    constructed: true,
    number: TagNumber::N1,
};

/// Returns the EC key with this secret and the certificate's public key, since ring does not derive
/// a public key; `None` for another kind of certificate. ring checks that the two match.
fn with_public_key(secret: &[u8], certificate: &[u8]) -> der::Result<Option<Vec<u8>>> {
    let signed = AnyRef::from_der(certificate)?.sequence(elements)?;
    let Some(fields) = signed.first() else {
        return Ok(None);
    };
    let fields = fields.sequence(elements)?;
    let has_version = fields
        .first()
        .is_some_and(|it| it.tag().is_context_specific());
    let Some(public_key) = fields.get(5 + usize::from(has_version)) else {
        return Ok(None);
    };
    let [algorithm, point] = public_key.sequence(elements)?[..] else {
        return Ok(None);
    };
    let [_, curve] = algorithm.sequence(elements)?[..] else {
        return Ok(None);
    };
    if curve.tag() != Tag::ObjectIdentifier {
        return Ok(None);
    }
    let parts = [
        element(0x02, &[1])?,
        element(0x04, secret)?,
        element(0xa0, &element(0x06, curve.value())?)?,
        element(0xa1, &element(0x03, point.value())?)?,
    ];
    element(0x30, &parts.concat()).map(Some)
}

fn elements<'a>(sequence: &mut SliceReader<'a>) -> der::Result<Vec<AnyRef<'a>>> {
    let mut all = Vec::new();
    while !sequence.is_finished() {
        all.push(AnyRef::decode(sequence)?);
    }
    Ok(all)
}

fn element(tag: u8, value: &[u8]) -> der::Result<Vec<u8>> {
    let mut der = vec![tag];
    Length::try_from(value.len())?.encode_to_vec(&mut der)?;
    der.extend_from_slice(value);
    Ok(der)
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

/// The text of a rustls error, with names of variants split into words: `MissingKeyShare` becomes
/// `Missing key share`.
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

// The parts of an X.509 certificate that the daemon needs: subject, validity and whether it is for
// servers (RFC 5280, sections 4.1 and 4.2.1.12). Pure. It verifies nothing; a caller that needs a
// trustworthy certificate asks rustls.

/// The tag of the extensions, the last field.
const EXTENSIONS: Tag = Tag::ContextSpecific {
    constructed: true,
    number: TagNumber::N3,
};

const EXTENDED_KEY_USAGE: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.37");

/// The purposes of a server's key: `serverAuth` and `anyExtendedKeyUsage`.
const SERVER_PURPOSES: [ObjectIdentifier; 2] = [
    ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.3.1"),
    ObjectIdentifier::new_unwrap("2.5.29.37.0"),
];

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// The attributes of the subject, in the certificate's order.
    pub subject: Vec<Attribute>,
    /// Begin and end of the validity; `None` for a time before 1970.
    pub validity: Option<(SystemTime, SystemTime)>,
    /// False if the certificate has an extended key usage without `serverAuth`.
    pub is_for_servers: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attribute {
    /// The type, an object identifier as encoded in DER.
    pub oid: Vec<u8>,
    pub value: String,
}

impl Certificate {
    pub fn parse(der: &[u8]) -> Result<Self, String> {
        let parsed = AnyRef::from_der(der).and_then(|certificate| {
            certificate.sequence(|parts| {
                let parsed = AnyRef::decode(parts)?.sequence(Self::of_fields);
                let _algorithm_and_signature = (AnyRef::decode(parts)?, AnyRef::decode(parts)?);
                parsed
            })
        });
        parsed.map_err(|_why| "not a DER certificate".to_owned())
    }

    fn of_fields(fields: &mut SliceReader<'_>) -> der::Result<Self> {
        // The version is the only optional field before the serial number.
        let has_version = fields.peek_tag()?.is_context_specific();
        for _version_serial_signature_issuer in 0..3 + usize::from(has_version) {
            AnyRef::decode(fields)?;
        }
        let times = |times: &mut SliceReader<'_>| {
            let (begin, end) = (AnyRef::decode(times)?, AnyRef::decode(times)?);
            Ok(time(begin).zip(time(end)))
        };
        let validity = AnyRef::decode(fields)?.sequence(times)?;
        let subject = AnyRef::decode(fields)?.sequence(attributes)?;
        let _public_key = AnyRef::decode(fields)?;
        let mut is_for_servers = true;
        while !fields.is_finished() {
            let field = AnyRef::decode(fields)?;
            if field.tag() == EXTENSIONS {
                let extensions = AnyRef::from_der(field.value())?;
                is_for_servers = extensions.sequence(allows_servers)?;
            }
        }
        Ok(Self {
            subject,
            validity,
            is_for_servers,
        })
    }

    /// The values of the subject's attributes of one type.
    pub fn values<'a>(&'a self, oid: &'a [u8]) -> impl Iterator<Item = &'a str> {
        let attributes = self.subject.iter();
        let attributes = attributes.filter(move |attribute| attribute.oid == oid);
        attributes.map(|attribute| attribute.value.as_str())
    }
}

fn attributes(names: &mut SliceReader<'_>) -> der::Result<Vec<Attribute>> {
    let mut all = Vec::new();
    while !names.is_finished() {
        let name = AnyRef::decode(names)?;
        name.tag().assert_eq(Tag::Set)?;
        let mut attributes = SliceReader::new(name.value())?;
        while !attributes.is_finished() {
            all.push(AnyRef::decode(&mut attributes)?.sequence(attribute)?);
        }
    }
    Ok(all)
}

fn attribute(fields: &mut SliceReader<'_>) -> der::Result<Attribute> {
    let oid = ObjectIdentifier::decode(fields)?.as_bytes().to_vec();
    let value = AnyRef::decode(fields)?;
    let value = match value.tag() {
        Tag::Utf8String | Tag::PrintableString | Tag::Ia5String | Tag::NumericString => {
            String::from_utf8(value.value().to_vec()).unwrap_or_default()
        }
        _ => String::new(),
    };
    Ok(Attribute { oid, value })
}

/// False if there is an extended key usage, and it does not allow servers.
fn allows_servers(extensions: &mut SliceReader<'_>) -> der::Result<bool> {
    let mut purposes = None;
    while !extensions.is_finished() {
        AnyRef::decode(extensions)?.sequence(|fields| {
            let oid = ObjectIdentifier::decode(fields)?;
            let _is_critical = Option::<bool>::decode(fields)?;
            let value = OctetStringRef::decode(fields)?;
            if oid == EXTENDED_KEY_USAGE {
                purposes = Some(Vec::<ObjectIdentifier>::from_der(value.as_bytes())?);
            }
            Ok(())
        })?;
    }
    let is_servers = |purpose: &ObjectIdentifier| SERVER_PURPOSES.contains(purpose);
    Ok(purposes.is_none_or(|purposes| purposes.iter().any(is_servers)))
}

/// Parses `YYMMDDhhmmssZ` or `YYYYMMDDhhmmssZ`.
fn time(time: AnyRef<'_>) -> Option<SystemTime> {
    let text = std::str::from_utf8(time.value()).ok()?.strip_suffix('Z')?;
    let text = match time.tag() {
        Tag::UtcTime if text < "50" => format!("20{text}"),
        Tag::UtcTime => format!("19{text}"),
        Tag::GeneralizedTime => text.to_owned(),
        _ => return None,
    };
    let time = DateTime::strptime("%Y%m%d%H%M%S", text).ok()?;
    let time = time.to_zoned(TimeZone::UTC).ok()?.timestamp();
    let seconds = Duration::from_secs(time.as_second().try_into().ok()?);
    SystemTime::UNIX_EPOCH.checked_add(seconds)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use rcgen::{CertificateParams, DnType, KeyPair, date_time_ymd};

    use super::{Certificate, certificates, certified_key, in_words};

    const P521: &[u8] = include_bytes!("../../../tests/data/tls/p521.pem");
    const VERSION_1: &[u8] = include_bytes!("../../../tests/data/tls/version-1.pem");
    const PKCS1: &str = include_str!("../../../tests/data/tls/pkcs1.key");

    fn problem(certificate: &[u8], key: &[u8]) -> String {
        let certified = certified_key(("C", certificate), ("K", key));
        certified.map(drop).expect_err("it cannot be used")
    }

    #[test]
    fn keys_are_read_whatever_their_label() {
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
    fn an_ec_key_takes_its_public_part_from_the_certificate() {
        // The key of VERSION_1 by `openssl ec -no_public` and `openssl pkcs8 -topk8 -nocrypt`.
        for key in [
            "-----BEGIN EC PRIVATE KEY-----\n\
             MDECAQEEIEo3xHhP+tBff9wIi1KlrYWc65/y5n85asM6+b+THqdtoAoGCCqGSM49\n\
             AwEH\n\
             -----END EC PRIVATE KEY-----\n",
            "-----BEGIN PRIVATE KEY-----\n\
             MEECAQAwEwYHKoZIzj0CAQYIKoZIzj0DAQcEJzAlAgEBBCBKN8R4T/rQX3/cCItS\n\
             pa2FnOuf8uZ/OWrDOvm/kx6nbQ==\n\
             -----END PRIVATE KEY-----\n",
        ] {
            certified_key(("C", VERSION_1), ("K", key.as_bytes())).expect("they belong together");
            assert_eq!(problem(P521, key.as_bytes()), "K does not belong to C");
        }
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
        assert_eq!(none, "it contains no PEM certificate");
    }

    #[test]
    fn names_of_variants_become_words() {
        let text = in_words(&"peer misbehaved: MissingKeyShare");
        assert_eq!(text, "peer misbehaved: Missing key share");
    }

    const COMMON_NAME: &[u8] = &[0x55, 4, 3];

    fn certificate(name: &str, years: [i32; 2]) -> Vec<u8> {
        let mut params = CertificateParams::new(vec!["host".to_owned()]).expect("valid names");
        params.distinguished_name.push(DnType::CommonName, name);
        let [begin, end] = years.map(|year| date_time_ymd(year, 1, 2));
        (params.not_before, params.not_after) = (begin, end);
        let key = KeyPair::generate().expect("a key");
        let signed = params.self_signed(&key).expect("a certificate");
        signed.der().to_vec()
    }

    #[test]
    fn subject_and_validity_are_read() {
        let der = certificate("naïve", [2024, 2051]);
        let parsed = Certificate::parse(&der).expect("a certificate");
        let names: Vec<&str> = parsed.values(COMMON_NAME).collect();
        assert_eq!(names.last(), Some(&"naïve"), "{parsed:?}");
        // 2051 does not fit a UTCTime, so this end is a GeneralizedTime.
        let at = |days: u64| SystemTime::UNIX_EPOCH + Duration::from_secs(days * 86_400);
        assert_eq!(parsed.validity, Some((at(19_724), at(29_586))));
    }

    #[test]
    fn a_time_before_1970_gives_no_validity() {
        let der = certificate("old", [1960, 2030]);
        let parsed = Certificate::parse(&der).expect("a certificate");
        assert_eq!(parsed.validity, None);
    }

    #[test]
    fn only_listed_purposes_exclude_servers() {
        use rcgen::ExtendedKeyUsagePurpose::{Any, ClientAuth, ServerAuth};
        for (purposes, expected) in [
            (vec![], true),
            (vec![ClientAuth], false),
            (vec![ClientAuth, ServerAuth], true),
            (vec![Any], true),
        ] {
            let mut params = CertificateParams::new(vec!["host".to_owned()]).expect("valid names");
            params.extended_key_usages.clone_from(&purposes);
            let key = KeyPair::generate().expect("a key");
            let signed = params.self_signed(&key).expect("a certificate");
            let parsed = Certificate::parse(signed.der()).expect("a certificate");
            assert_eq!(parsed.is_for_servers, expected, "{purposes:?}");
        }
    }

    #[test]
    fn a_length_beyond_the_end_is_no_certificate() {
        let der = certificate("me", [2024, 2030]);
        let at = der.windows(4).position(|it| it == [0x0c, 2, b'm', b'e']);
        let at = at.expect("the name is a UTF8String");
        for length in [
            &[0x88, 255, 255, 255, 255, 255, 255, 255, 240][..],
            &[0x84, 255, 255, 255, 240],
        ] {
            let mut changed = der.clone();
            changed.splice(at + 1..at + 2, length.iter().copied());
            assert!(Certificate::parse(&changed).is_err());
        }
    }

    #[test]
    fn no_prefix_or_changed_byte_causes_a_panic() {
        let der = certificate("me", [2024, 2030]);
        for end in 0..der.len() {
            assert!(Certificate::parse(&der[..end]).is_err(), "{end}");
        }
        for index in 0..der.len() {
            for byte in [0, 1, 0x7f, 0x80, 0x81, 0x84, 0x88, 0xff] {
                let mut changed = der.clone();
                changed[index] = byte;
                Certificate::parse(&changed).map(drop).unwrap_or_default();
            }
        }
    }
}
