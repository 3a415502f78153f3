//! `dev`: dev server, simulated kubelet and controller in one process, until stopped.

use std::time::Duration;

use super::{RunError, finish, manager_options};
use crate::cli::DevArgs;
use crate::client::ClientConfig;
use crate::devserver::{DevServer, DevServerOptions, KubeletOptions};
use crate::manager::Manager;
use crate::stdx::stop::Stop;

/// Runs both until `stop` is given; the controller is stopped before the server.
///
/// # Errors
/// If the port is taken, or what made the daemon fail.
pub fn dev(args: &DevArgs, stop: &Stop) -> Result<(), RunError> {
    // The server must outlive the controller, which has a last event to write.
    let server_stop = Stop::new();
    let listen = format!("127.0.0.1:{}", args.port);
    let mut server = start_server(listen, args.pod_ready_after, &server_stop)?;
    let config = ClientConfig::plain(&server.url());
    let options = manager_options(&args.controller);
    let manager = Manager::start(&config, &options, stop).map_err(RunError::Client)?;
    log::info!(
        "dev server and controller are ready: kubectl --server={} get rs",
        server.url()
    );
    let result = finish(manager);
    server.stop();
    result
}

/// A dev server with a simulated kubelet and garbage collector.
pub(super) fn start_server(
    listen: String,
    ready_after: Duration,
    stop: &Stop,
) -> Result<DevServer, RunError> {
    let options = DevServerOptions {
        listen,
        garbage_collection: true,
        kubelet: Some(KubeletOptions {
            ready_after,
            ..KubeletOptions::default()
        }),
        ..DevServerOptions::default()
    };
    DevServer::start(&options, stop).map_err(RunError::DevServer)
}
