//! Through a proxy.

use super::secure::{Authority, base64, kubeconfig, load};
use super::server::{Reply, Server, answer};
use super::{client, unlimited};
use crate::client::Request;

#[test]
fn a_tunnel_leads_to_tls_and_the_proxy_looks_up_the_name() {
    let authority = Authority::new();
    let proxy = Server::proxy(authority.server(&["cluster.invalid"], None), |received| {
        if received.first_line.starts_with("CONNECT") {
            Reply::WriteAndTunnel(b"HTTP/1.1 200 OK\r\n\r\n".to_vec())
        } else {
            Reply::Write(answer(200, "", "ok"))
        }
    });
    let ca = base64(&authority.pem());
    let url = proxy.url().replace("http://", "http://us%40er:se%3Acret@");
    let cluster = [
        ("certificate-authority-data", ca.as_str()),
        ("proxy-url", &url),
    ];
    let config = load(&kubeconfig(
        "https://cluster.invalid:6443",
        &cluster,
        &[("token", "t")],
    ));
    let config = config.expect("the kubeconfig is good");
    assert!(!format!("{config:?}").contains("cret"));
    let (client, _) = client(&config, &unlimited());
    for _ in 0..2 {
        client.send(&Request::get("/a")).expect("it gets through");
    }
    let (connect, get) = (proxy.next(), proxy.next());
    assert_eq!(connect.first_line, "CONNECT cluster.invalid:6443 HTTP/1.1");
    assert_eq!(
        connect.all("proxy-authorization"),
        [format!("Basic {}", base64("us@er:se:cret"))]
    );
    assert_eq!(connect.all("authorization"), [""; 0]);
    assert_eq!(get.first_line, "GET /a HTTP/1.1");
    assert_eq!(get.all("authorization"), ["Bearer t"]);
    assert_eq!(get.server_name.as_deref(), Some("cluster.invalid"));
    assert_eq!(proxy.rest().len(), 1);
}

#[test]
fn a_proxy_that_refuses_proves_that_nothing_was_sent() {
    let proxy = Server::plain(|_| Reply::WriteAndClose(answer(403, "", "no")));
    let url = proxy.url();
    let cluster = [
        ("insecure-skip-tls-verify", "true"),
        ("proxy-url", url.as_str()),
    ];
    let config = load(&kubeconfig("https://cluster.invalid:6443", &cluster, &[]));
    let (client, _) = client(&config.expect("the kubeconfig is good"), &unlimited());
    let error = client
        .send(&Request::get("/a"))
        .expect_err("the proxy refuses");
    assert!(error.is_unsent() && error.status().is_none(), "{error:?}");
    assert!(error.to_string().contains("403"), "{error}");
}
