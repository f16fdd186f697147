//! An HTTPS server on all cores: tokio's threads, hyper and rustls, on port 443. `tls [NAME]` makes a certificate for
//! NAME (localhost) when it starts. SIGTERM, as `tare stop` sends it, ends the server after the answers that it has begun.

use std::convert::Infallible;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

/// A client that has not finished its handshake by then is gone.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

static ANSWERED: AtomicU64 = AtomicU64::new(0);

/// A thread for each core.
#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let name = std::env::args().nth(1).unwrap_or("localhost".to_owned());
    let acceptor = TlsAcceptor::from(Arc::new(config(name)?));
    let listener = TcpListener::bind(("0.0.0.0", 443)).await?;
    println!("{} threads", thread::available_parallelism()?);
    let mut terminated = signal(SignalKind::terminate())?;
    let graceful = GracefulShutdown::new();
    loop {
        tokio::select! {
            _ = terminated.recv() => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    tokio::spawn(serve(stream, acceptor.clone(), graceful.watcher()));
                }
                Err(error) => eprintln!("accept: {error}"),
            },
        }
    }
    graceful.shutdown().await;
    println!("{} answers", ANSWERED.load(Ordering::Relaxed));
    Ok(())
}

/// A key, and a certificate that it signs itself.
fn config(name: String) -> Result<ServerConfig, Box<dyn Error>> {
    let made = rcgen::generate_simple_self_signed([name])?;
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der())?;
    let config = ServerConfig::builder().with_no_client_auth();
    Ok(config.with_single_cert(vec![made.cert.der().clone()], key)?)
}

async fn serve(stream: TcpStream, acceptor: TlsAcceptor, watcher: Watcher) {
    let handshake = tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream));
    let stream = match handshake.await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return eprintln!("handshake: {error}"),
        Err(_) => return eprintln!("handshake: no end within {HANDSHAKE_TIMEOUT:?}"),
    };
    let connection =
        http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(answer));
    if let Err(error) = watcher.watch(connection).await {
        eprintln!("connection: {error}");
    }
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    ANSWERED.fetch_add(1, Ordering::Relaxed);
    let text = format!("hello over TLS: {}\n", request.uri().path());
    Ok(Response::new(Full::from(text)))
}
