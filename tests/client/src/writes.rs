//! RTE writes and what is read of them.

use std::time::Duration;

use lancedb::index::Index;
use lancedb::index::scalar::{FtsIndexBuilder, FullTextSearchQuery};
use lancedb::index::vector::IvfFlatIndexBuilder;
use lancedb::query::QueryBase;
use lancedb::table::RTEWriteSpec;

use crate::tables::{Done, SERVED, connect, create, held, pairs_of, rows, sstables, upsert};

pub(crate) async fn every_rte_write_is_read_at_once_and_stays_read_when_it_is_folded() -> Done {
    let db = connect(SERVED).await?;
    let specs = [RTEWriteSpec::unsharded(), RTEWriteSpec::bucket("id", 3), RTEWriteSpec::identity("id")];
    let tries = specs.into_iter().zip(["writes_unsharded", "writes_bucket", "writes_identity"]).map(|(spec, name)| {
        let db = &db;
        async move {
            let table = create(db, name, &[(1, 0), (2, 0), (3, 0)], Some(spec)).await?;
            let merged = upsert(&table, &[(3, 1), (4, 1)], None).await?;
            assert_eq!((merged.num_rows, merged.version), (2, 0));
            let union = [(1, 0), (2, 0), (3, 1), (4, 1)];
            assert_eq!(held(&table, None).await?, union);
            assert_eq!(held(&table, Some(true)).await?, union);
            assert_eq!(held(&table, Some(false)).await?, [(1, 0), (2, 0), (3, 0)]);
            table.add(rows(&[(5, 2)])).execute().await?;
            table.update().only_if("id = 1").column("n", "7").execute().await?;
            table.delete("id = 2").await?;
            let expected = [(1, 7), (3, 1), (4, 1), (5, 2)];
            assert_eq!(held(&table, None).await?, expected);
            assert_eq!(table.count_rows(Some("n = 1".into())).await?, 2);
            table.checkpoint_rte().await?;
            assert_eq!(sstables(&table, false).await?, []);
            assert_eq!(held(&table, None).await?, expected);
            assert_eq!(held(&table, Some(false)).await?, expected);
            Done::Ok(())
        }
    });
    // A checkpoint looks every five seconds: they wait together.
    futures::future::try_join_all(tries).await?;
    Ok(())
}

pub(crate) async fn a_merge_goes_where_use_rte_says() -> Done {
    let db = connect(SERVED).await?;
    let table = create(&db, "writes_where", &[(1, 0)], Some(RTEWriteSpec::unsharded())).await?;
    assert_eq!(upsert(&table, &[(2, 1)], Some(true)).await?.num_rows, 1);
    assert_eq!(held(&table, Some(false)).await?, [(1, 0)]);
    let merged = upsert(&table, &[(1, 1), (3, 1)], Some(false)).await?;
    assert_eq!((merged.num_inserted_rows, merged.num_updated_rows), (1, 1));
    assert!(merged.version > 0);
    assert_eq!(held(&table, Some(false)).await?, [(1, 1), (3, 1)]);
    assert_eq!(held(&table, None).await?, [(1, 1), (2, 1), (3, 1)]);
    Ok(())
}

pub(crate) async fn a_flush_and_a_compaction_are_seen_in_the_stats() -> Done {
    let db = connect(SERVED).await?;
    let table = create(&db, "writes_stats", &[(9, 0)], Some(RTEWriteSpec::unsharded())).await?;
    upsert(&table, &[(1, 1), (2, 1)], None).await?;
    let stats = table.get_rte_stats(true).await?.ok_or("no stats")?;
    let [shard] = &stats.table_shards[..] else { return Err(format!("{stats:?}").into()) };
    assert_eq!((shard.status.as_str(), shard.compacting, shard.sstables.len()), ("Active", false, 0));
    let memtables = shard.memtables.as_ref().ok_or("no memtables")?;
    assert_eq!(memtables.iter().map(|memtable| memtable.rows).sum::<u64>(), 2);
    table.flush_rte().await?;
    table.flush_rte().await?;
    let counted = sstables(&table, true).await?;
    let [(generation, Some(2))] = counted[..] else { return Err(format!("{counted:?}").into()) };
    assert_eq!(sstables(&table, false).await?, [(generation, None)]);
    upsert(&table, &[(2, 2), (3, 2), (4, 2)], None).await?;
    table.flush_rte().await?;
    let counted = sstables(&table, true).await?;
    assert_eq!(counted.iter().map(|(_, rows)| *rows).collect::<Vec<_>>(), [Some(2), Some(3)]);
    table.compact_rte().await?;
    table.checkpoint_rte().await?;
    assert_eq!(sstables(&table, true).await?, []);
    assert_eq!(held(&table, Some(false)).await?, [(1, 1), (2, 2), (3, 2), (4, 2), (9, 0)]);
    Ok(())
}

pub(crate) async fn a_search_finds_rows_that_no_index_holds_yet() -> Done {
    let db = connect(SERVED).await?;
    let pairs: Vec<(i32, i32)> = (1..=300).map(|id| (id, 0)).collect();
    let table = create(&db, "writes_searched", &pairs, None).await?;
    let minute = Some(Duration::from_secs(60));
    let flat = Index::IvfFlat(IvfFlatIndexBuilder::default().num_partitions(2));
    table.create_index_with_timeout(&["vector"], flat, minute).execute().await?;
    table.create_index_with_timeout(&["text"], Index::FTS(FtsIndexBuilder::default()), minute).execute().await?;
    table.enable_rte(RTEWriteSpec::unsharded()).await?;
    upsert(&table, &[(400, 1), (7, 5)], None).await?;
    for _ in ["in memory", "in an SSTable"] {
        let near = table.query().nearest_to(&[7.1, 0.0])?.limit(2);
        assert_eq!(pairs_of(near).await?, [(7, 5), (8, 0)]);
        let far = table.query().nearest_to(&[399.0, 0.0])?.only_if("id > 5").limit(1);
        assert_eq!(pairs_of(far).await?, [(400, 1)]);
        for words in [
            FullTextSearchQuery::new("word400".into()).with_column("text".into())?,
            FullTextSearchQuery::new("word400".into()),
        ] {
            let found = table.query().full_text_search(words).limit(5);
            assert_eq!(pairs_of(found).await?, [(400, 1)]);
        }
        table.flush_rte().await?;
    }
    Ok(())
}

pub(crate) async fn a_spec_is_told_as_it_was_set() -> Done {
    let db = connect(SERVED).await?;
    let defaults = [("max_memtable_rows".to_string(), "5000".to_string())];
    let sets = [
        RTEWriteSpec::bucket("id", 7).with_writer_config_defaults(defaults),
        RTEWriteSpec::identity("id").with_maintained_indexes(Vec::<String>::new()),
        RTEWriteSpec::unsharded(),
    ];
    for (at, spec) in sets.into_iter().enumerate() {
        let table = create(&db, &format!("writes_spec_{at}"), &[(1, 0)], None).await?;
        assert_eq!(table.get_rte_spec().await?, None);
        assert!(table.get_rte_stats(false).await?.is_none());
        table.enable_rte(spec.clone()).await?;
        assert_eq!(table.get_rte_spec().await?, Some(spec));
    }
    Ok(())
}

pub(crate) async fn a_table_whose_spec_is_gone_keeps_its_rows() -> Done {
    let db = connect(SERVED).await?;
    let table = create(&db, "writes_gone", &[(1, 0)], Some(RTEWriteSpec::bucket("id", 2))).await?;
    upsert(&table, &[(1, 1), (2, 1)], None).await?;
    table.disable_rte().await?;
    assert_eq!(table.get_rte_spec().await?, None);
    assert_eq!(held(&table, None).await?, [(1, 1), (2, 1)]);
    let merged = upsert(&table, &[(2, 2), (3, 2)], None).await?;
    assert_eq!((merged.num_inserted_rows, merged.num_updated_rows), (1, 1));
    table.enable_rte(RTEWriteSpec::unsharded()).await?;
    assert_eq!(held(&table, Some(true)).await?, [(1, 1), (2, 2), (3, 2)]);
    Ok(())
}

pub(crate) async fn another_handle_reads_what_this_one_wrote() -> Done {
    let (one, two) = (connect(SERVED).await?, connect(SERVED).await?);
    let table = create(&one, "writes_shared", &[(1, 0)], Some(RTEWriteSpec::unsharded())).await?;
    let other = two.open_table("writes_shared").execute().await?;
    for n in 1..4 {
        upsert(&table, &[(1, n)], None).await?;
        assert_eq!(held(&other, None).await?, [(1, n)]);
    }
    Ok(())
}
