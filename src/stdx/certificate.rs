//! The parts of an X.509 certificate that the daemon needs: subject and validity (RFC 5280, section
//! 4.1). Pure. It verifies nothing; whoever needs a trustworthy certificate asks rustls.

use std::time::{Duration, SystemTime};

use yasna::models::ObjectIdentifier;
use yasna::tags::{
    TAG_GENERALIZEDTIME, TAG_IA5STRING, TAG_NUMERICSTRING, TAG_PRINTABLESTRING, TAG_UTF8STRING,
};
use yasna::{ASN1Result, BERReader, BERReaderSeq, Tag, parse_der};

/// Subject and validity of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// The attributes of the subject, in the certificate's order.
    pub subject: Vec<Attribute>,
    /// Begin and end of the validity; `None` for a time before 1970.
    pub validity: Option<(SystemTime, SystemTime)>,
}

/// An attribute of a certificate's subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attribute {
    /// The type as dotted numbers, such as `2.5.4.3`.
    pub oid: String,
    /// The value; empty if it is no text.
    pub value: String,
}

impl Certificate {
    /// Parses a certificate in DER.
    ///
    /// # Errors
    /// If `der` is no certificate, or if bytes follow it.
    pub fn parse(der: &[u8]) -> Result<Self, String> {
        let parsed = parse_der(der, |certificate| {
            certificate.read_sequence(|parts| {
                let signed = parts.next().read_sequence(signed_part)?;
                skip_rest(parts)?;
                Ok(signed)
            })
        });
        parsed.map_err(|error| error.to_string())
    }

    /// The values of the subject's attributes of one type.
    pub fn values<'a>(&'a self, oid: &'a str) -> impl Iterator<Item = &'a str> {
        let attributes = self.subject.iter();
        let attributes = attributes.filter(move |attribute| attribute.oid == oid);
        attributes.map(|attribute| attribute.value.as_str())
    }
}

fn signed_part(fields: &mut BERReaderSeq<'_, '_>) -> ASN1Result<Certificate> {
    let version = Tag::context(0);
    fields.read_optional(|field| field.read_tagged(version, skip))?;
    for _serial_signature_issuer in 0..3 {
        skip(fields.next())?;
    }
    let (begin, end) = fields
        .next()
        .read_sequence(|times| Ok((time(times.next())?, time(times.next())?)))?;
    let mut subject = Vec::new();
    fields.next().read_sequence_of(|name| {
        name.read_set_of(|attribute| {
            subject.push(attribute.read_sequence(self::attribute)?);
            Ok(())
        })
    })?;
    skip_rest(fields)?;
    Ok(Certificate {
        subject,
        validity: begin.zip(end),
    })
}

fn attribute(fields: &mut BERReaderSeq<'_, '_>) -> ASN1Result<Attribute> {
    let oid: ObjectIdentifier = fields.next().read_oid()?;
    let value = fields.next().read_tagged_der()?;
    let texts = [
        TAG_UTF8STRING,
        TAG_PRINTABLESTRING,
        TAG_IA5STRING,
        TAG_NUMERICSTRING,
    ];
    let text = if texts.contains(&value.tag()) {
        String::from_utf8(value.value().to_vec()).unwrap_or_default()
    } else {
        String::new()
    };
    Ok(Attribute {
        oid: oid.to_string(),
        value: text,
    })
}

fn time(time: BERReader<'_, '_>) -> ASN1Result<Option<SystemTime>> {
    let seconds = if time.lookahead_tag()? == TAG_GENERALIZEDTIME {
        time.read_generalized_time()?.datetime().unix_timestamp()
    } else {
        time.read_utctime()?.datetime().unix_timestamp()
    };
    let seconds = u64::try_from(seconds).ok().map(Duration::from_secs);
    Ok(seconds.and_then(|seconds| SystemTime::UNIX_EPOCH.checked_add(seconds)))
}

fn skip_rest(fields: &mut BERReaderSeq<'_, '_>) -> ASN1Result<()> {
    while fields.read_optional(skip)?.is_some() {}
    Ok(())
}

fn skip(field: BERReader<'_, '_>) -> ASN1Result<()> {
    field.read_der().map(drop)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use rcgen::{CertificateParams, DnType, KeyPair, date_time_ymd};

    use super::Certificate;

    const COMMON_NAME: &str = "2.5.4.3";

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
    fn no_prefix_or_changed_byte_causes_a_panic() {
        let der = certificate("me", [2024, 2030]);
        for end in 0..der.len() {
            assert!(Certificate::parse(&der[..end]).is_err(), "{end}");
        }
        for index in 0..der.len() {
            for byte in [0, 1, 0x7f, 0x80, 0x81, 0x84, 0xff] {
                let mut changed = der.clone();
                changed[index] = byte;
                Certificate::parse(&changed).map(drop).unwrap_or_default();
            }
        }
    }
}
