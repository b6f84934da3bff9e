//! Jobs, as the client lists and steers them.

use arrow_array::cast::AsArray;
use futures::TryStreamExt;
use lancedb::database::{PauseJobStatus, ResumeJobStatus};
use lancedb::job::JobEventsRequest;
use lancedb::listing::ListingOptions;
use lancedb::table::RTEWriteSpec;
use lancedb::{Connection, Error};

use crate::tables::{Done, SERVED, STILL, assert_refused, connect, create, upsert};

/// The jobs of a table: id, kind and state, the newest first.
async fn jobs_of(db: &Connection, table: &str) -> lancedb::Result<Vec<(String, String, String)>> {
    let jobs: Vec<_> = db.list_jobs(ListingOptions::default()).try_collect().await?;
    let of = jobs.into_iter().filter(|job| job.table == table);
    Ok(of.map(|job| (job.job_id, job.job_type, job.state)).collect())
}

pub(crate) async fn a_pass_is_a_job_that_is_listed_described_and_done() -> Done {
    let db = connect(SERVED).await?;
    let table = create(&db, "jobs_done", &[(9, 0)], Some(RTEWriteSpec::unsharded())).await?;
    upsert(&table, &[(1, 1)], None).await?;
    table.checkpoint_rte().await?;
    let jobs = jobs_of(&db, "jobs_done").await?;
    let pass = jobs.iter().find(|(_, kind, _)| kind == "memwal_compaction");
    let (id, ..) = pass.ok_or_else(|| format!("{jobs:?}"))?;
    let job = db.open_job(id).await?;
    job.wait().await?;
    assert_eq!(job.status().await?, "finished");
    assert_eq!(job.job_type().as_deref(), Some("memwal_compaction"));
    assert!(job.spec().is_some() && job.result().is_some() && job.failure().is_none());
    let events = job.events(JobEventsRequest::default()).await?;
    let done = job.events(JobEventsRequest::default().filter("state = 'claim_complete'")).await?;
    let count = |batches: &[arrow_array::RecordBatch]| batches.iter().map(|batch| batch.num_rows()).sum::<usize>();
    assert!(count(&events) > 2, "{events:?}");
    assert_eq!(count(&done), 1);
    let none = job.events(JobEventsRequest::default().filter("state = 'nothing'")).await?;
    assert_eq!((count(&none), none[0].schema()), (0, events[0].schema()));
    // It has ended: to cancel it changes nothing, and it can't be paused.
    assert!(db.cancel_job(id).await?);
    assert_eq!(job.status().await?, "finished");
    assert_refused(db.pause_job(id).await, 409, "has ended");
    assert_eq!(db.resume_job(id).await?, ResumeJobStatus::NotPaused);
    Ok(())
}

pub(crate) async fn pages_of_jobs_follow_each_other() -> Done {
    let db = connect(STILL).await?;
    for at in 0..3 {
        let name = format!("jobs_page_{at}");
        let table = create(&db, &name, &[(9, 0)], Some(RTEWriteSpec::unsharded())).await?;
        upsert(&table, &[(1, 1)], None).await?;
        table.flush_rte().await?;
        table.compact_rte().await?;
    }
    let tables = async |options: ListingOptions| -> lancedb::Result<Vec<String>> {
        let jobs: Vec<_> = db.list_jobs(options).map_ok(|job| job.table).try_collect().await?;
        Ok(jobs.into_iter().filter(|table| table.starts_with("jobs_page")).collect())
    };
    let newest_first = ["jobs_page_2", "jobs_page_1", "jobs_page_0"];
    assert_eq!(tables(ListingOptions::default()).await?, newest_first);
    assert_eq!(tables(ListingOptions::default().page_limit(1)).await?, newest_first);
    Ok(())
}

pub(crate) async fn a_job_that_waits_is_paused_resumed_and_cancelled() -> Done {
    let db = connect(STILL).await?;
    let table = create(&db, "jobs_wait", &[(9, 0)], Some(RTEWriteSpec::unsharded())).await?;
    upsert(&table, &[(1, 1)], None).await?;
    table.flush_rte().await?;
    table.compact_rte().await?;
    let jobs = jobs_of(&db, "jobs_wait").await?;
    let [(id, kind, state)] = &jobs[..] else { return Err(format!("{jobs:?}").into()) };
    assert_eq!((kind.as_str(), state.as_str()), ("memwal_compaction", "running"));
    let job = db.open_job(id).await?;
    assert_eq!(job.status().await?, "running");
    assert_eq!(db.resume_job(id).await?, ResumeJobStatus::NotPaused);
    assert_eq!(db.pause_job(id).await?, PauseJobStatus::Pausing);
    assert_eq!(db.pause_job(id).await?, PauseJobStatus::AlreadyPaused);
    assert_eq!(job.status().await?, "PAUSED");
    assert_eq!(db.resume_job(id).await?, ResumeJobStatus::Resumed);
    assert_eq!(job.status().await?, "running");
    job.cancel().await?;
    assert_eq!(job.status().await?, "cancelled");
    assert!(matches!(job.wait().await, Err(Error::JobCancelled { .. })));
    let stats = table.get_rte_stats(false).await?.ok_or("no stats")?;
    assert!(!stats.table_shards[0].compacting);
    Ok(())
}

pub(crate) async fn a_job_that_nobody_knows_is_not_found() -> Done {
    let db = connect(SERVED).await?;
    assert!(matches!(db.open_job("none").await, Err(Error::JobNotFound { .. })));
    assert!(!db.cancel_job("none").await?);
    assert_refused(db.pause_job("none").await, 404, "no job `none`");
    assert_refused(db.resume_job("none").await, 404, "no job `none`");
    Ok(())
}

pub(crate) async fn jobs_are_shown_by_sql() -> Done {
    let db = connect(SERVED).await?;
    let table = create(&db, "jobs_sql", &[(9, 0)], Some(RTEWriteSpec::unsharded())).await?;
    upsert(&table, &[(1, 1)], None).await?;
    table.checkpoint_rte().await?;
    let listed = jobs_of(&db, "jobs_sql").await?;
    let query = db.execute_query_async("SHOW JOBS FOR TABLE `jobs_sql`").execute().await?;
    let shown: Vec<arrow_array::RecordBatch> = query.reader().await?.try_collect().await?;
    let shown: Vec<&str> = shown.iter().flat_map(|batch| batch["id"].as_string::<i32>().iter().flatten()).collect();
    assert!(!listed.is_empty() && listed.iter().all(|(id, ..)| shown.contains(&id.as_str())), "{listed:?} {shown:?}");
    Ok(())
}
