//! Who waits is woken: by this process at once, by others through the engine's own notifications.
//!
//! They are hints: whoever waits also looks every [`super::POLL`].

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use sqlx::AnyConnection;
use sqlx::postgres::PgListener;
use tokio::sync::broadcast;

use super::store::{Engine, Store};

/// PostgreSQL's channel.
const CHANNEL: &str = "caretaker";
/// A payload that PostgreSQL takes.
const PAYLOAD_MAX: usize = 7_000;
/// Rings that a slow listener may miss before it has to look at everything.
const KEPT: usize = 1_024;
/// Pause before a lost connection of the listener is made anew.
const AGAIN: Duration = Duration::from_secs(1);

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ring {
    /// A job waits for a worker.
    Waiting,
    /// Somebody asked a running job to stop.
    Asked,
    /// A job of the table at this address ended.
    Ended(String),
    /// A process came or went.
    Members,
    /// Nobody knows: look at everything.
    Anything,
}

#[derive(Clone, Debug)]
pub(super) struct Bell {
    sender: broadcast::Sender<Ring>,
    /// The address to listen at, and whether somebody does.
    server: Option<Arc<(Store, OnceLock<()>)>>,
}

impl Bell {
    pub(super) fn of(store: &Store) -> Self {
        let server = (store.engine == Engine::Postgres).then(|| Arc::new((store.clone(), OnceLock::new())));
        Self { sender: broadcast::channel(KEPT).0, server }
    }

    pub(super) fn listen(&self) -> broadcast::Receiver<Ring> {
        // Before anybody follows the channel: what is heard first must not be lost.
        let receiver = self.sender.subscribe();
        if let Some(server) = &self.server
            && server.1.set(()).is_ok()
        {
            tokio::spawn(follow(server.0.clone(), self.sender.clone()));
        }
        receiver
    }

    /// Tells others, with the transaction that did it.
    pub(super) async fn tell(&self, connection: &mut AnyConnection, ring: &Ring) -> sqlx::Result<()> {
        if self.server.is_some() {
            let payload = match ring {
                Ring::Waiting => "waiting".to_string(),
                Ring::Asked => "asked".to_string(),
                Ring::Members => "members".to_string(),
                Ring::Ended(uri) if uri.len() <= PAYLOAD_MAX => format!("ended {uri}"),
                Ring::Ended(_) | Ring::Anything => "anything".to_string(),
            };
            let told = sqlx::query("SELECT cast(pg_notify($1, $2) as text)").bind(CHANNEL).bind(payload);
            told.fetch_all(connection).await?;
        }
        Ok(())
    }

    /// Tells this process, after the commit.
    pub(super) fn ring(&self, ring: Ring) {
        // Nobody may be listening.
        let _ = self.sender.send(ring);
    }
}

/// Follows the channel for as long as the process lives. Behind a pooler that lends a connection for one
/// transaction nothing comes through it; then looking every now and then has to do.
async fn follow(store: Store, sender: broadcast::Sender<Ring>) {
    let mut silent = false;
    loop {
        let listener = async {
            let mut listener = PgListener::connect(&store.address).await?;
            listener.listen(CHANNEL).await?;
            Ok::<_, sqlx::Error>(listener)
        };
        let mut listener = match listener.await {
            Ok(listener) => listener,
            Err(error) => {
                if !std::mem::replace(&mut silent, true) {
                    let error = store.trouble(error);
                    tracing::warn!(%error, "notifications of the registry can't be followed; it is looked at instead");
                }
                tokio::time::sleep(AGAIN).await;
                continue;
            }
        };
        silent = false;
        // What was said meanwhile is lost.
        let _ = sender.send(Ring::Anything);
        loop {
            match listener.try_recv().await {
                Ok(Some(said)) => drop(sender.send(read(said.payload()))),
                Ok(None) => drop(sender.send(Ring::Anything)),
                Err(_) => break,
            }
        }
        tokio::time::sleep(AGAIN).await;
    }
}

fn read(payload: &str) -> Ring {
    match payload.split_once(' ') {
        Some(("ended", uri)) => Ring::Ended(uri.to_string()),
        _ if payload == "waiting" => Ring::Waiting,
        _ if payload == "asked" => Ring::Asked,
        _ if payload == "members" => Ring::Members,
        _ => Ring::Anything,
    }
}
