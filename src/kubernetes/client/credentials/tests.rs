//! Authentication headers, and a token file that changes.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use secrecy::SecretString;
use ureq::http::header::{AUTHORIZATION, HeaderMap};

use super::{Authorization, Credentials, Impersonation, Owner, TokenFile, escape_header};
use crate::stdx::stop::Stop;
use crate::stdx::testing::FakeClock;

fn headers(authorization: Authorization, impersonation: &Impersonation) -> HeaderMap {
    let credentials =
        Credentials::new(authorization, impersonation, Owner::default()).expect("they are good");
    let mut headers = HeaderMap::new();
    let issued = credentials.apply(&mut headers, &Stop::new());
    assert!(issued.expect("nothing can go wrong").is_none());
    headers
}

#[track_caller]
fn check_authorization(authorization: Authorization, expected: Option<&str>) {
    let headers = headers(authorization, &Impersonation::default());
    let value = headers.get(AUTHORIZATION);
    assert!(value.is_none_or(ureq::http::HeaderValue::is_sensitive));
    let value = value.map(|value| value.to_str().expect("it is text"));
    assert_eq!(value, expected);
}

#[test]
fn a_token_that_fits_no_request_is_an_error() {
    let long = "t".repeat(14 << 10);
    super::bearer(&long).expect("it fits");
    let error = super::bearer(&long.repeat(2)).expect_err("it does not");
    assert_eq!(error, "the credential is longer than 15 KiB");
}

#[test]
fn each_way_of_authorization_has_its_header() {
    check_authorization(Authorization::None, None);
    check_authorization(Authorization::Token("abc\n".into()), Some("Bearer abc"));
    let basic = Authorization::Basic("Aladdin".to_owned(), "open sesame".into());
    check_authorization(basic, Some("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="));
}

#[test]
fn debug_prints_no_secret() {
    let token = || SecretString::from("hunter2\u{1}");
    let broken = Credentials::new(
        Authorization::Token(token()),
        &Impersonation::default(),
        Owner::default(),
    );
    let error = broken.expect_err("HTTP does not allow that");
    assert!(!error.contains("hunter2"));
    let token = Authorization::Token("hunter2".into());
    let credentials =
        Credentials::new(token, &Impersonation::default(), Owner::default()).expect("it is good");
    assert!(!format!("{credentials:?}").contains("hunter2"));
}

#[test]
fn impersonation_has_a_header_for_each_part() {
    let impersonation = Impersonation {
        user: Some("jane".to_owned()),
        uid: Some("42".to_owned()),
        groups: vec!["a".to_owned(), "b".to_owned()],
        extra: vec![
            ("example.com/scope".to_owned(), "x".to_owned()),
            ("example.com/scope".to_owned(), "y".to_owned()),
        ],
    };
    let headers = headers(Authorization::None, &impersonation);
    let all = |name: &str| {
        let values = headers.get_all(name).iter();
        let values = values.map(|value| value.to_str().expect("it is text").to_owned());
        values.collect::<Vec<_>>()
    };
    assert_eq!(all("impersonate-user"), ["jane"]);
    assert_eq!(all("impersonate-uid"), ["42"]);
    assert_eq!(all("impersonate-group"), ["a", "b"]);
    assert_eq!(all("impersonate-extra-example.com%2fscope"), ["x", "y"]);
}

#[test]
fn impersonation_without_a_user_is_an_error() {
    for impersonation in [
        Impersonation {
            uid: Some("42".to_owned()),
            ..Impersonation::default()
        },
        Impersonation {
            groups: vec!["a".to_owned()],
            ..Impersonation::default()
        },
    ] {
        let credentials = Credentials::new(Authorization::None, &impersonation, Owner::default());
        assert!(credentials.is_err_and(|error| error.contains("as-groups")));
    }
}

#[test]
fn names_of_extras_are_escaped_as_upstream_does() {
    for (name, expected) in [
        ("abc", "abc"),
        ("a.b-c_d", "a.b-c_d"),
        ("a/b", "a%2Fb"),
        ("100%", "100%25"),
        ("a b:c", "a%20b%3Ac"),
        ("ü", "%C3%BC"),
    ] {
        assert_eq!(escape_header(name), expected);
    }
}

#[test]
fn a_token_file_is_read_again_and_a_failed_read_keeps_the_token() {
    let directory = tempfile::tempdir().expect("there is room");
    let path = directory.path().join("token");
    let write = |text: &str| fs::write(&path, text).expect("there is room");
    let clock = Arc::new(FakeClock::default());
    write("one\n");
    let file = TokenFile::open(path.clone(), None, Arc::clone(&clock) as _).expect("it is there");
    let check = |expected: &str| {
        let value = file.current().header.clone();
        assert_eq!(
            value.to_str().expect("it is text"),
            format!("Bearer {expected}")
        );
    };
    write("two");
    clock.advance(Duration::from_secs(49));
    check("one");
    clock.advance(Duration::from_secs(1));
    check("two");

    for bad in ["", "thr\u{1}ee"] {
        write(bad);
        clock.advance(Duration::from_secs(50));
        check("two");
    }
    fs::remove_file(&path).expect("it is there");
    clock.advance(Duration::from_secs(50));
    check("two");
    write("four");
    clock.advance(Duration::from_secs(9));
    check("two");
    clock.advance(Duration::from_secs(1));
    check("four");
}

#[test]
fn a_token_file_is_read_again_when_its_token_is_rejected() {
    let directory = tempfile::tempdir().expect("there is room");
    let path = directory.path().join("token");
    fs::write(&path, "one").expect("there is room");
    let clock = Arc::new(FakeClock::default());
    let file = TokenFile::open(path.clone(), None, Arc::clone(&clock) as _).expect("it is there");
    fs::write(&path, "two").expect("there is room");
    file.note_rejected();
    assert_eq!(
        file.current().header,
        "Bearer one",
        "it was read a moment ago"
    );
    clock.advance(Duration::from_secs(2));
    assert_eq!(file.current().header, "Bearer one");
    file.note_rejected();
    assert_eq!(file.current().header, "Bearer two");
}

#[test]
fn a_token_file_that_is_missing_at_the_start_is_an_error() {
    let missing = Authorization::TokenFile {
        path: "/no/such/token".into(),
        until_readable: None,
    };
    let error = Credentials::new(missing, &Impersonation::default(), Owner::default());
    let error = error.expect_err("it is missing");
    assert!(error.contains("/no/such/token"), "{error}");
}

#[test]
fn a_token_bridges_the_time_until_its_file_is_there() {
    let directory = tempfile::tempdir().expect("there is room");
    let path = directory.path().join("token");
    let clock = Arc::new(FakeClock::default());
    let token = SecretString::from("static");
    let file = TokenFile::open(path.clone(), Some(&token), Arc::clone(&clock) as _);
    let file = file.expect("there is a token");
    assert_eq!(file.current().header, "Bearer static");
    fs::write(&path, "from the file").expect("there is room");
    clock.advance(Duration::from_secs(10));
    assert_eq!(file.current().header, "Bearer from the file");
}

#[test]
fn a_token_file_that_has_become_a_pipe_blocks_no_thread() {
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    let directory = tempfile::tempdir().expect("there is room");
    let path = directory.path().join("token");
    fs::write(&path, "one").expect("there is room");
    let clock = Arc::new(FakeClock::default());
    let file = TokenFile::open(path.clone(), None, Arc::clone(&clock) as _).expect("it is there");
    fs::remove_file(&path).expect("it is there");
    mknodat(CWD, &path, FileType::Fifo, Mode::RUSR, 0).expect("a pipe");
    clock.advance(Duration::from_secs(50));
    assert_eq!(file.current().header, "Bearer one");
}

fn rejected(authorization: Authorization, owner: Owner) -> String {
    let credentials = Credentials::new(authorization, &Impersonation::default(), owner);
    credentials.expect("they are good").rejected(None)
}

#[test]
fn a_rejection_names_the_owner_the_end_and_the_remedy() {
    let payload = r#"{"exp": 1767225600, "sub": "system:serviceaccount:kube-system:rs"}"#;
    let token = format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(payload));
    let owner = Owner {
        user: "user \"daemon\"".to_owned(),
        origin: "kubeconfig /etc/rs.conf, context \"it\"".to_owned(),
        ..Owner::default()
    };
    assert_eq!(
        rejected(Authorization::Token(token.as_str().into()), owner.clone()),
        "the token of user \"daemon\" (kubeconfig /etc/rs.conf, context \"it\") (401 Unauthorized); \
         it expired at 2026-01-01T00:00:00Z; put a new one into the kubeconfig and send SIGHUP \
         (kubectl -n kube-system create token rs)"
    );
    let directory = tempfile::tempdir().expect("there is room");
    let path = directory.path().join("token");
    fs::write(&path, "opaque").expect("there is room");
    let file = Authorization::TokenFile {
        path: path.clone(),
        until_readable: None,
    };
    let message = rejected(file, owner.clone());
    assert!(message.starts_with(&format!("the token in {} of user", path.display())));
    assert!(
        message.ends_with("; write a new one into the file"),
        "{message}"
    );

    for (content, renews_itself) in [("opaque", true), (token.as_str(), false)] {
        fs::write(&path, content).expect("there is room");
        let file = Authorization::TokenFile {
            path: path.clone(),
            until_readable: None,
        };
        let read = Credentials::new(file, &Impersonation::default(), Owner::default());
        assert_eq!(read.expect("it is good").renews_itself(), renews_itself);
    }

    let basic = Authorization::Basic("some".to_owned(), "hunter2".into());
    let message = rejected(basic, owner.clone());
    assert!(message.starts_with("the name and password of"), "{message}");
    for (owner, what) in [
        (owner.clone(), "a request without credentials of user"),
        (
            Owner {
                has_certificate: true,
                ..owner.clone()
            },
            "the client certificate of user",
        ),
        (
            Owner {
                has_certificate: true,
                is_withheld: true,
                ..owner
            },
            "a request without the credentials of user",
        ),
    ] {
        let message = rejected(Authorization::None, owner);
        assert!(message.starts_with(what), "{message}");
    }
}
