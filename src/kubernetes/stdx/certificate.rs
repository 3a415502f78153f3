//! The parts of an X.509 certificate that the daemon needs: subject, validity and whether it is for
//! servers (RFC 5280, sections 4.1 and 4.2.1.12). Pure. It verifies nothing; whoever needs a
//! trustworthy certificate asks rustls.

use std::time::{Duration, SystemTime};

use jiff::civil::DateTime;
use jiff::tz::TimeZone;

// Tags of ASN.1 (X.690).
const BOOLEAN: u8 = 0x01;
const OCTET_STRING: u8 = 0x04;
const OID: u8 = 0x06;
const UTF8_STRING: u8 = 0x0c;
const NUMERIC_STRING: u8 = 0x12;
const PRINTABLE_STRING: u8 = 0x13;
const IA5_STRING: u8 = 0x16;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
/// The version, the only optional field before the serial number.
const VERSION: u8 = 0xa0;
/// The extensions, the last field.
const EXTENSIONS: u8 = 0xa3;

/// The extension with the purposes of the key, and `serverAuth` and `anyExtendedKeyUsage` of these.
const EXTENDED_KEY_USAGE_OID: &[u8] = &[0x55, 0x1d, 0x25];
const SERVER_PURPOSES: [&[u8]; 2] = [&[0x2b, 6, 1, 5, 5, 7, 3, 1], &[0x55, 0x1d, 0x25, 0]];

/// Subject and validity of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// The attributes of the subject, in the certificate's order.
    pub subject: Vec<Attribute>,
    /// Begin and end of the validity; `None` for a time before 1970.
    pub validity: Option<(SystemTime, SystemTime)>,
    /// False if the certificate lists purposes and being a server's is none of them.
    pub is_for_servers: bool,
}

/// An attribute of a certificate's subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attribute {
    /// The type, an object identifier as encoded in DER.
    pub oid: Vec<u8>,
    /// The value; empty if it is no text.
    pub value: String,
}

impl Certificate {
    /// Parses a certificate in DER.
    ///
    /// # Errors
    /// If `der` is no certificate, or if bytes follow it.
    pub fn parse(der: &[u8]) -> Result<Self, String> {
        let parsed = Elements(der).only(SEQUENCE).and_then(Self::of_contents);
        parsed.ok_or_else(|| "this is no certificate in DER".to_owned())
    }

    fn of_contents(certificate: &[u8]) -> Option<Self> {
        let mut fields = Elements(Elements(certificate).take(SEQUENCE)?);
        if fields.0.first() == Some(&VERSION) {
            fields.take(VERSION)?;
        }
        for _serial_signature_issuer in 0..3 {
            fields.take_any()?;
        }
        let mut times = Elements(fields.take(SEQUENCE)?);
        let (begin, end) = (times.take_any()?, times.take_any()?);
        let mut subject = Vec::new();
        let mut names = Elements(fields.take(SEQUENCE)?);
        while !names.0.is_empty() {
            let mut attributes = Elements(names.take(SET)?);
            while !attributes.0.is_empty() {
                subject.push(attribute(attributes.take(SEQUENCE)?)?);
            }
        }
        fields.take(SEQUENCE)?;
        let mut is_for_servers = true;
        while !fields.0.is_empty() {
            let (tag, contents) = fields.take_any()?;
            if tag == EXTENSIONS {
                is_for_servers = is_for_servers_by(Elements(contents).only(SEQUENCE)?)?;
            }
        }
        Some(Self {
            subject,
            validity: time(begin).zip(time(end)),
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

fn is_for_servers_by(extensions: &[u8]) -> Option<bool> {
    let mut extensions = Elements(extensions);
    while !extensions.0.is_empty() {
        let mut fields = Elements(extensions.take(SEQUENCE)?);
        if fields.take(OID)? != EXTENDED_KEY_USAGE_OID {
            continue;
        }
        let (mut tag, mut value) = fields.take_any()?;
        if tag == BOOLEAN {
            (tag, value) = fields.take_any()?;
        }
        let value = (tag == OCTET_STRING).then_some(value)?;
        let mut purposes = Elements(Elements(value).only(SEQUENCE)?);
        while !purposes.0.is_empty() {
            if SERVER_PURPOSES.contains(&purposes.take(OID)?) {
                return Some(true);
            }
        }
        return Some(false);
    }
    Some(true)
}

fn attribute(fields: &[u8]) -> Option<Attribute> {
    let mut fields = Elements(fields);
    let oid = fields.take(OID)?;
    let (tag, value) = fields.take_any()?;
    let texts = [UTF8_STRING, PRINTABLE_STRING, IA5_STRING, NUMERIC_STRING];
    let value = if texts.contains(&tag) { value } else { &[] };
    Some(Attribute {
        oid: oid.to_vec(),
        value: String::from_utf8(value.to_vec()).unwrap_or_default(),
    })
}

/// Parses `YYMMDDhhmmssZ` or `YYYYMMDDhhmmssZ`.
fn time((tag, text): (u8, &[u8])) -> Option<SystemTime> {
    let text = std::str::from_utf8(text).ok()?.strip_suffix('Z')?;
    let text = match tag {
        UTC_TIME if text < "50" => format!("20{text}"),
        UTC_TIME => format!("19{text}"),
        GENERALIZED_TIME => text.to_owned(),
        _ => return None,
    };
    let time = DateTime::strptime("%Y%m%d%H%M%S", text).ok()?;
    let time = time.to_zoned(TimeZone::UTC).ok()?.timestamp();
    let seconds = Duration::from_secs(time.as_second().try_into().ok()?);
    SystemTime::UNIX_EPOCH.checked_add(seconds)
}

/// The rest of a series of elements: tag, length, contents.
struct Elements<'a>(&'a [u8]);

impl<'a> Elements<'a> {
    /// Takes the next element and returns its tag and contents. `None` for what DER does not allow
    /// or a certificate does not contain: an indefinite length, a length of more than four bytes.
    fn take_any(&mut self) -> Option<(u8, &'a [u8])> {
        let (&[tag, first], mut rest) = self.0.split_first_chunk()?;
        let length = match first {
            0..=0x7f => usize::from(first),
            0x81..=0x84 => {
                let (length, after) = rest.split_at_checked(usize::from(first & 0x7f))?;
                rest = after;
                length
                    .iter()
                    .fold(0, |length, byte| length << 8 | usize::from(*byte))
            }
            _ => return None,
        };
        let (contents, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((tag, contents))
    }

    /// Takes the next element, which must have this tag, and returns its contents.
    fn take(&mut self, tag: u8) -> Option<&'a [u8]> {
        let (found, contents) = self.take_any()?;
        (found == tag).then_some(contents)
    }

    /// Returns the contents of the single element, which must have this tag.
    fn only(mut self, tag: u8) -> Option<&'a [u8]> {
        let contents = self.take(tag)?;
        self.0.is_empty().then_some(contents)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use rcgen::{CertificateParams, DnType, KeyPair, date_time_ymd};

    use super::Certificate;

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
