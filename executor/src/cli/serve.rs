//! `caretaker serve`: tends a root, and answers clients.

use std::sync::Arc;

use tokio::signal::unix::SignalKind;
use tokio_util::sync::CancellationToken;

use super::{Exit, Work};
use crate::error::Result;
use crate::pod::{Pod, Pressure};
use crate::registry::{Member, Role};
use crate::serve::{Door, Service};
use crate::signal::{Stop, handler};

/// SIGHUP has the keys read again; nothing stops for it.
pub(super) fn reread(door: Option<&Door>) -> Result<()> {
    let keys = door.map(|door| door.keys.clone()).unwrap_or_default();
    let mut hangup = handler(SignalKind::hangup())?;
    tokio::spawn(async move {
        while hangup.recv().await.is_some() {
            if let Err(error) = keys.reload() {
                tracing::error!(%error, "the keys stay as they were");
            }
        }
    });
    Ok(())
}

/// Serves until it is told to stop, then drains.
pub(super) async fn run(work: Work) -> Result<Exit> {
    for lint in work.settings.policy.lint() {
        tracing::warn!(setting = lint.key, "{}", lint.why);
    }
    let stop = Stop::listen()?;
    let limits = work.settings.limits(true);
    let drained = CancellationToken::new();
    let mut tender = work.tender(drained.clone());
    if limits.own == 0 {
        tender = tender.offloaded();
    }
    let (member, listen) = (Member::here(Role::Agent, work.root.uri()), work.settings.door()?);
    reread(listen.as_ref())?;
    if listen.is_none() {
        tracing::info!("HTTP is off; --listen 127.0.0.1:9650 lets LanceDB's clients in");
    }
    let pod = Arc::new(Pod::new(Pressure::new(work.settings.pod)));
    let (root, session, tender) = (work.root, work.session, Arc::new(tender));
    let service = Service { root, session, tender, member, limits, pod, drained, listen };
    service.run(stop.token().clone()).await?;
    Ok(Exit::Done)
}
