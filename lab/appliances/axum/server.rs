//! A web server by axum over HTTP/1.1: it reads a directory once and answers from memory, on one
//! thread. lab/appliances/axum/appliance.toml names its place in the guest; an argument is another
//! address.

use std::env;
use std::fs;
use std::io;

use axum::Router;
use axum::body::Bytes;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::runtime::Builder;

fn main() -> io::Result<()> {
    Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(serve())
}

async fn serve() -> io::Result<()> {
    let address = env::args().nth(1);
    let listener = TcpListener::bind(address.as_deref().unwrap_or("0.0.0.0:80")).await?;
    axum::serve(listener, routes("/srv")?).await
}

/// Each file at its name, `index.html` also at `/`.
fn routes(directory: &str) -> io::Result<Router> {
    let mut router = Router::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let kind = match path.extension() {
            Some(extension) if extension == "html" => "text/html",
            _ => "text/plain",
        };
        let content = Bytes::from(fs::read(&path)?);
        let answer = move || async move { ([(CONTENT_TYPE, kind)], content) };
        router = router.route(&format!("/{name}"), get(answer.clone()));
        if name == "index.html" {
            router = router.route("/", get(answer));
        }
    }
    Ok(router)
}
