//! `caretaker worker`: runs jobs that others decided on.

use std::sync::Arc;

use clap::Args;

use super::bars::Bars;
use super::serve::reread;
use super::{Exit, Intent, block_on, log, registry};
use crate::catalog::Root;
use crate::error::{Error, Result};
use crate::registry::{Member, Role};
use crate::serve::work;
use crate::settings::Settings;
use crate::signal::Stop;
use crate::tend::Tender;

#[derive(Args)]
pub(super) struct WorkerArgs {
    /// Take jobs of tables below this root only.
    #[arg(long, value_name = "ROOT")]
    root: Option<String>,
}

/// Works until it is told to stop, then lets running jobs end.
pub(super) fn run(args: &WorkerArgs, settings: Settings) -> Result<Exit> {
    log::start(&settings, log::TALKING, Bars::default());
    let root = args.root.as_deref().map(Root::parse).transpose()?;
    let root = root.map_or_else(String::new, |root| root.uri().to_string());
    if settings.worker.jobs == 0 {
        return Err(Error::Invalid("a worker of 0 jobs does nothing; set worker_jobs to 1 or more".into()));
    }
    block_on(async {
        let registry = registry(&settings, Intent::Serve).await?;
        let stop = Stop::listen()?;
        let member = Member::here(Role::Worker, &root);
        let mut tender =
            Tender::new(settings.policy.clone(), crate::table::session(), stop.token().clone()).offloaded();
        tender.registry = registry;
        tender.name.clone_from(&member.name);
        tender.stall = settings.worker.stall;
        tracing::info!(name = member.name, registry = tender.registry.place(), "working");
        let door = settings.door()?;
        reread(door.as_ref())?;
        work(member, Arc::new(tender), settings.limits(false), door, stop.token().clone()).await?;
        Ok(Exit::Done)
    })
}
