//! Cancel, pause, resume: at once where nobody works on it, else at the worker's next safe point.

use super::store::Store;
use super::{Registry, Ring, State};
use crate::error::Result;
use futures::FutureExt;

/// What a request did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// There is no such job.
    Unknown,
    /// It is as was asked.
    Done,
    /// Its worker does so at its next safe point.
    Asked,
    /// It had ended before, so: nothing was changed.
    Ended(State),
    /// The request does not fit where the job is.
    Not(State),
}

impl Registry {
    /// Stops a job for good. One that has ended stays as it is.
    ///
    /// # Errors
    /// `Retry` or `Away` when the registry does not answer.
    pub async fn cancel(&self, id: &str) -> Result<Answer> {
        let now = self.store.sql(
            "UPDATE caretaker_job SET state = 'cancelled', outcome = 'cancelled', ended_ms = {now}
             WHERE id = $1 AND state IN ('pending', 'paused') RETURNING uri",
        );
        let ask = "UPDATE caretaker_job SET ask = 'cancel' WHERE id = $1 AND state = 'running' RETURNING uri";
        self.change(id, (&now, "cancelled"), (ask, "cancel_requested")).await
    }

    /// Keeps a job from running until [`Self::resume`]. What a running one has done so far is done anew then.
    ///
    /// # Errors
    /// As [`Self::cancel`].
    pub async fn pause(&self, id: &str) -> Result<Answer> {
        let now = "UPDATE caretaker_job SET state = 'paused' WHERE id = $1 AND state = 'pending' RETURNING uri";
        let ask = "UPDATE caretaker_job SET ask = coalesce(ask, 'pause') WHERE id = $1 AND state = 'running' \
                   RETURNING uri";
        self.change(id, (now, "paused"), (ask, "pause_requested")).await
    }

    /// Lets a paused job go on.
    ///
    /// # Errors
    /// As [`Self::cancel`].
    pub async fn resume(&self, id: &str) -> Result<Answer> {
        let now = self.store.sql(
            "UPDATE caretaker_job SET state = 'pending', run_at_ms = {now}
             WHERE id = $1 AND state = 'paused' RETURNING uri",
        );
        let ask = "UPDATE caretaker_job SET ask = NULL WHERE id = $1 AND state = 'running' AND ask = 'pause' \
                   RETURNING uri";
        self.change(id, (&now, "resumed"), (ask, "resumed")).await
    }

    /// The first statement is for a job that nobody works on, the second asks its worker.
    async fn change(&self, id: &str, now: (&str, &str), ask: (&str, &str)) -> Result<Answer> {
        let answer = self.store.again(|| {
            async {
                let mut tx = self.store.begin().await?;
                let done: Option<String> = sqlx::query_scalar(now.0).bind(id).fetch_optional(&mut *tx).await?;
                if let Some(uri) = done {
                    self.event(&mut tx, id, now.1, Some(""), None).await?;
                    let ring = match now.1 {
                        "cancelled" => {
                            self.end_parts(&mut tx, id).await?;
                            Ring::Ended(uri)
                        }
                        _ => Ring::Waiting,
                    };
                    self.bell.tell(&mut tx, &ring).await?;
                    tx.commit().await?;
                    return Ok((Answer::Done, Some(ring)));
                }
                let asked: Option<String> = sqlx::query_scalar(ask.0).bind(id).fetch_optional(&mut *tx).await?;
                if asked.is_some() {
                    self.event(&mut tx, id, ask.1, Some(""), None).await?;
                    self.bell.tell(&mut tx, &Ring::Asked).await?;
                    tx.commit().await?;
                    return Ok((Answer::Asked, Some(Ring::Asked)));
                }
                tx.rollback().await?;
                Ok((where_it_is(&self.store, id).await?, None))
            }
            .boxed()
        });
        let (answer, ring) = answer.await?;
        if let Some(ring) = ring {
            self.bell.ring(ring);
        }
        Ok(answer)
    }
}

async fn where_it_is(store: &Store, id: &str) -> sqlx::Result<Answer> {
    let state: Option<String> = sqlx::query_scalar("SELECT state FROM caretaker_job WHERE id = $1")
        .bind(id)
        .fetch_optional(&store.pool())
        .await?;
    Ok(match state.as_deref().and_then(State::of) {
        None => Answer::Unknown,
        Some(state) if state.is_end() => Answer::Ended(state),
        Some(state) => Answer::Not(state),
    })
}
