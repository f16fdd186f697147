//! A REST service that keeps notes in SQLite: `rest [DATABASE]`, on port 80. GET /notes lists them, POST /notes
//! adds one; GET, PUT and DELETE /notes/N read, change and remove one. SIGTERM, as `tare stop` sends it, ends the
//! service after the last answer.

mod notes;

use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use notes::{Note, Notes, Text};

/// All requests share one connection: a statement takes microseconds, and SQLite has one writer.
type Shared = State<Arc<Mutex<Notes>>>;
/// A status and a sentence for the client.
type Refusal = (StatusCode, String);

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).unwrap_or("/notes.db".to_owned());
    let notes = Arc::new(Mutex::new(Notes::open(&path)?));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?;
    runtime.block_on(serve(Arc::clone(&notes)))?;
    let count = with(&State(notes), Notes::count).map_err(|(_, why)| why)?;
    println!("{count} notes");
    Ok(())
}

async fn serve(notes: Arc<Mutex<Notes>>) -> Result<(), Box<dyn Error>> {
    let app = Router::new()
        .route("/notes", get(list).post(add))
        .route("/notes/{number}", get(one).put(change).delete(remove))
        .with_state(notes);
    let mut terminated = signal(SignalKind::terminate())?;
    let listener = TcpListener::bind(("0.0.0.0", 80)).await?;
    let server = axum::serve(listener, app);
    server
        .with_graceful_shutdown(async move { _ = terminated.recv().await })
        .await?;
    Ok(())
}

async fn list(notes: Shared) -> Result<Json<Vec<Note>>, Refusal> {
    with(&notes, Notes::all).map(Json)
}

async fn add(notes: Shared, Json(new): Json<Text>) -> Result<(StatusCode, Json<Note>), Refusal> {
    let note = with(&notes, |notes| notes.add(new))?;
    Ok((StatusCode::CREATED, Json(note)))
}

async fn one(notes: Shared, Path(number): Path<i64>) -> Result<Json<Note>, Refusal> {
    let note = with(&notes, |notes| notes.one(number))?;
    note.map(Json).ok_or_else(|| missing(number))
}

async fn change(
    notes: Shared,
    Path(number): Path<i64>,
    Json(new): Json<Text>,
) -> Result<Json<Note>, Refusal> {
    let note = with(&notes, |notes| notes.change(number, new))?;
    note.map(Json).ok_or_else(|| missing(number))
}

async fn remove(notes: Shared, Path(number): Path<i64>) -> Result<StatusCode, Refusal> {
    let was_there = with(&notes, |notes| notes.remove(number))?;
    was_there
        .then_some(StatusCode::NO_CONTENT)
        .ok_or_else(|| missing(number))
}

fn missing(number: i64) -> Refusal {
    (
        StatusCode::NOT_FOUND,
        format!("there is no note {number}\n"),
    )
}

/// What `act` makes of the notes; an error of SQLite is the server's.
fn with<T>(
    notes: &Shared,
    act: impl FnOnce(&mut Notes) -> rusqlite::Result<T>,
) -> Result<T, Refusal> {
    let mut notes = notes.lock().unwrap_or_else(PoisonError::into_inner);
    act(&mut notes).map_err(|error| {
        eprintln!("database: {error}");
        (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n"))
    })
}
