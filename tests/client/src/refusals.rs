//! What is refused, and how the client sees it.

use lancedb::Error;
use lancedb::query::QueryBase;
use lancedb::table::{OptimizeAction, RTEWriteSpec};

use crate::tables::{
    Done, OTHER, SERVED, STILL, assert_refused, connect, create, held, pairs_of, reader, rows, upsert,
};

pub(crate) async fn what_needs_a_write_spec_is_refused_without_one() -> Done {
    let db = connect(SERVED).await?;
    let table = create(&db, "refused_plain", &[(1, 0)], None).await?;
    assert_refused(held(&table, Some(true)).await, 400, "write spec");
    assert_refused(upsert(&table, &[(1, 1)], Some(true)).await, 400, "write spec");
    assert_refused(table.flush_rte().await, 400, "write spec");
    assert_refused(table.compact_rte().await, 400, "write spec");
    assert_refused(table.checkpoint_rte().await, 400, "write spec");
    assert_refused(table.disable_rte().await, 400, "write spec");
    let keyless = db.create_table("refused_keyless", rows(&[(1, 0)])).execute().await?;
    assert_refused(keyless.enable_rte(RTEWriteSpec::unsharded()).await, 400, "primary key");
    assert_refused(table.enable_rte(RTEWriteSpec::bucket("nothing", 2)).await, 400, "nothing");
    assert_refused(table.enable_rte(RTEWriteSpec::bucket("id", 0)).await, 400, "");
    assert_eq!(held(&table, None).await?, [(1, 0)]);
    Ok(())
}

pub(crate) async fn what_a_table_with_a_write_spec_cannot_do_is_refused() -> Done {
    let db = connect(SERVED).await?;
    let table = create(&db, "refused_rte", &[(1, 0)], Some(RTEWriteSpec::unsharded())).await?;
    assert_refused(table.enable_rte(RTEWriteSpec::unsharded()).await, 400, "already");
    let with_row_id = pairs_of(table.query().with_row_id()).await;
    assert_refused(with_row_id, 400, "does not support with_row_id");
    let mut merge = table.merge_insert(&["id"]);
    merge.when_matched_update_all(Some("source.n > target.n".into()));
    assert_refused(merge.execute(reader(rows(&[(1, 1)]))).await, 400, "");
    let mut merge = table.merge_insert(&["n"]);
    merge.when_matched_update_all(None).when_not_matched_insert_all();
    assert_refused(merge.execute(reader(rows(&[(1, 1)]))).await, 400, "");
    assert_refused(table.delete("nothing = 1").await, 400, "nothing");
    assert_refused(pairs_of(table.query().only_if("nothing = 1")).await, 400, "nothing");
    assert_eq!(held(&table, None).await?, [(1, 0)]);
    Ok(())
}

pub(crate) async fn a_shard_that_a_pass_is_at_is_refused_another() -> Done {
    let db = connect(STILL).await?;
    let table = create(&db, "refused_busy", &[(9, 0)], Some(RTEWriteSpec::unsharded())).await?;
    upsert(&table, &[(1, 1)], None).await?;
    table.flush_rte().await?;
    table.compact_rte().await?;
    assert_refused(table.compact_rte().await, 429, "\"code\":21");
    let stats = table.get_rte_stats(false).await?.ok_or("no stats")?;
    assert!(stats.table_shards[0].compacting);
    assert_eq!(held(&table, None).await?, [(1, 1), (9, 0)]);
    Ok(())
}

pub(crate) async fn a_writer_that_nobody_folds_behind_is_refused_and_what_was_answered_is_read() -> Done {
    let db = connect(STILL).await?;
    let small = RTEWriteSpec::unsharded().with_writer_config_defaults([("max_memtable_rows", "64")]);
    let table = create(&db, "refused_fast", &[(-1, 0)], Some(small)).await?;
    let mut written = vec![(-1, 0)];
    for turn in 0..40 {
        let pairs: Vec<(i32, i32)> = (turn * 64..(turn + 1) * 64).map(|id| (id, turn)).collect();
        let answer = upsert(&table, &pairs, None).await;
        if answer.is_err() {
            assert_refused(answer, 429, "\"code\":21");
            assert_eq!(held(&table, None).await?, written);
            return Ok(());
        }
        written.extend(pairs);
    }
    Err("it is never refused".into())
}

pub(crate) async fn a_lost_claim_is_refused_once_and_a_checkpoint_begins_anew() -> Done {
    let (one, two) = (connect(STILL).await?, connect(OTHER).await?);
    let first = create(&one, "refused_claim", &[(9, 0)], Some(RTEWriteSpec::unsharded())).await?;
    let second = two.open_table("refused_claim").execute().await?;
    // A server that looks at its shards just then finds out before a write does.
    let mut lost = 0;
    for n in 1..=8 {
        for (table, key) in [(&second, 2), (&first, 1)] {
            let answer = upsert(table, &[(key, n)], None).await;
            if answer.is_err() {
                assert_refused(answer, 421, "\"code\":19");
                upsert(table, &[(key, n)], None).await?;
                lost += 1;
            }
        }
    }
    assert!(lost > 0);
    // The second's claim is lost by now. Its client flushes again, which claims the shard anew.
    second.checkpoint_rte().await?;
    assert_eq!(held(&second, Some(false)).await?, [(1, 8), (2, 8), (9, 0)]);
    Ok(())
}

pub(crate) async fn a_table_that_is_not_there_is_not_found() -> Done {
    let db = connect(SERVED).await?;
    let missing = db.open_table("refused_nothing").execute().await;
    assert!(matches!(missing, Err(Error::TableNotFound { .. })));
    let table = create(&db, "refused_dropped", &[(1, 0)], Some(RTEWriteSpec::unsharded())).await?;
    upsert(&table, &[(1, 1)], None).await?;
    db.drop_table("refused_dropped", &[]).await?;
    assert!(matches!(table.flush_rte().await, Err(Error::TableNotFound { .. })));
    assert!(matches!(table.get_rte_stats(false).await, Err(Error::TableNotFound { .. })));
    assert!(matches!(held(&table, None).await, Err(Error::TableNotFound { .. })));
    create(&db, "refused_taken", &[(1, 0)], None).await?;
    let taken = create(&db, "refused_taken", &[(1, 0)], None).await;
    assert!(matches!(taken, Err(Error::TableAlreadyExists { .. })));
    Ok(())
}

pub(crate) async fn optimize_is_not_the_clients() -> Done {
    let db = connect(SERVED).await?;
    let table = create(&db, "refused_optimize", &[(1, 0)], None).await?;
    assert!(matches!(table.optimize(OptimizeAction::All).await, Err(Error::NotSupported { .. })));
    Ok(())
}
