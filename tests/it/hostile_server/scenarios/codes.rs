//! Codes, and headers that ask for something.

use super::Breaks::{Everything, ReplicaSets};
use super::{BOUNDS, Bounds, Scenario, row};
use crate::support::{Reply, Then};

pub(super) const CODES: &[Scenario] = &[
    row(
        "302 to another server",
        Everything,
        "which is not followed",
        |elsewhere| {
            Reply::whole(
                "302 Found",
                &format!("Location: http://{elsewhere}/steal\r\n"),
                "",
            )
        },
    ),
    row(
        "307 to another server",
        Everything,
        "which is not followed",
        |elsewhere| {
            let location = format!("Location: http://{elsewhere}/steal\r\n");
            Reply::whole("307 Temporary Redirect", &location, "")
        },
    ),
    row("401 for ever", Everything, "(401 Unauthorized)", |_| {
        Reply::whole(
            "401 Unauthorized",
            "",
            r#"{"kind":"Status","code":401,"message":"no"}"#,
        )
    }),
    Scenario {
        bounds: Bounds {
            requests: 200,
            ..BOUNDS
        },
        ..row(
            "Retry-After: 0",
            Everything,
            "rejected the request with code 503",
            |_| {
                Reply::whole(
                    "503 Service Unavailable",
                    "Retry-After: 0\r\n",
                    r#"{"kind":"Status","code":503}"#,
                )
            },
        )
    },
    row(
        "Retry-After: -5",
        Everything,
        "rejected the request with code 429",
        |_| {
            let body =
                r#"{"kind":"Status","code":429,"details":{"retryAfterSeconds":-2147483648}}"#;
            Reply::whole("429 Too Many Requests", "Retry-After: -5\r\n", body)
        },
    ),
    row(
        "Retry-After: 2^64",
        Everything,
        "rejected the request with code 429",
        |_| {
            let body = r#"{"kind":"Status","code":429,"details":{"retryAfterSeconds":2147483647}}"#;
            let header = "Retry-After: 18446744073709551616\r\n";
            Reply::whole("429 Too Many Requests", header, body)
        },
    ),
    row(
        "code 999",
        Everything,
        "rejected the request with code 999",
        |_| Reply::whole("999 Odd", "", "{}"),
    ),
    row(
        "code 204 to a list",
        ReplicaSets,
        "unexpected end of file in the body",
        |_| Reply::raw("HTTP/1.1 204 No Content\r\n\r\n", Then::Next),
    ),
    row("code -1", Everything, "invalid response status", |_| {
        Reply::whole("-1 Odd", "", "{}")
    }),
    row(
        "code 101",
        ReplicaSets,
        "HTTP code 101 and no reason",
        |_| {
            Reply::raw(
                "HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\n",
                Then::Hold,
            )
        },
    ),
    row(
        "control characters in a message",
        Everything,
        r"a | FAKE ERROR [main] \u{1b}[31mred\r\u{7} \u{85} \u{2028} \u{202e} rtl",
        |_| {
            let message = r"a\nFAKE ERROR [main] \u001b[31mred\r\u0007 \u0085 \u2028 \u202e rtl";
            let body =
                format!(r#"{{"kind":"Status","code":-1,"reason":"","message":"{message}"}}"#);
            Reply::whole("403 Forbidden", "", &body)
        },
    ),
    Scenario {
        bounds: Bounds {
            lines: 120,
            ..BOUNDS
        },
        ..row(
            "a storm of warnings",
            ReplicaSets,
            "the API server warns: w49",
            |_| {
                let warning = |n: u32| format!("Warning: 299 - \"w{n}\"\r\n");
                let warnings = (0..50).map(warning).collect::<Vec<_>>().concat();
                Reply::whole("403 Forbidden", &warnings, "{}")
            },
        )
    },
    row("a long message", Everything, " bytes left out)", |_| {
        let message = "x".repeat(900_000);
        let body = format!(r#"{{"kind":"Status","code":403,"message":"{message}"}}"#);
        Reply::whole("403 Forbidden", "", body)
    }),
];
