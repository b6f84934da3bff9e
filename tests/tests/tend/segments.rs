//! An index brought up to date in parts.

use std::collections::BTreeSet;
use std::sync::Arc;

use executor::fault::hook;
use executor::registry::State;
use executor::report::JobEnd;
use lance::dataset::UpdateBuilder;
use lance::index::DatasetIndexExt;
use lance_index::IndexType;
use lance_index::scalar::{BuiltinIndexType, ScalarIndexParams};
use planner::job::IndexOp;

use crate::parts::{Set, ended, fail_second, hold, within};

/// Those of which Lance can merge segments.
const INDEXES: [(&str, &str); 4] =
    [("btree", "id_idx"), ("bitmap", "cat_idx"), ("fts", "text_idx"), ("ivfflat", "vec_idx")];

#[tokio::test(flavor = "multi_thread")]
async fn an_index_is_extended_and_merged_in_parts_by_two_workers_and_answers_as_before() {
    for (kind, name) in INDEXES {
        let set = Set::new().await;
        for (op, segments) in [(IndexOp::Append, 2), (IndexOp::Merge, 1)] {
            set.append().await;
            let before = set.answers().await;
            let id = set.indexing(kind, name, op).await;
            let gate = hold(&set, "part.before", 0);
            let first = set.work("first", None).await;
            gate.came(1).await;
            let second = set.work("second", Some(&id)).await;
            gate.came(2).await;
            gate.open();
            assert!(matches!(within(second).await[0].end, JobEnd::Part { .. }));
            let report = within(first).await.remove(0);
            assert!(matches!(report.end, JobEnd::Indexed), "{name}: {report:?}");
            assert_eq!((set.segments(name).await, set.answers().await), ((segments, 0), before), "{name} {op:?}");
            assert_eq!(ended(&set.parts(&id).await, State::Succeeded), 8);
            assert_eq!(set.litter().await, BTreeSet::new(), "{name} {op:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn with_stable_row_ids_an_index_in_parts_forgets_the_values_before_an_update() {
    for (kind, name) in INDEXES {
        let set = Set::of(true).await;
        set.append().await;
        let dataset = Arc::new(set.dataset().await);
        let update = UpdateBuilder::new(dataset).update_where("id % 5 = 1").unwrap();
        let update = update.set("cat", "'c1'").unwrap().set("text", "'word9 new'").unwrap();
        update.set("id", "id + 100000").unwrap().build().unwrap().execute().await.unwrap();
        let before = set.answers().await;
        let id = set.indexing(kind, name, IndexOp::Append).await;
        let report = within(set.work("w", None).await).await.remove(0);
        assert!(matches!(report.end, JobEnd::Indexed), "{name}: {report:?}");
        assert_eq!((set.segments(name).await.1, set.answers().await), (0, before), "{name}");
        // Lance does not split full-text indexes here.
        assert_eq!(set.parts(&id).await.is_empty(), name == "text_idx");
        assert_eq!(set.litter().await, BTreeSet::new(), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_whose_segments_lance_can_not_merge_goes_in_one_piece() {
    let set = Set::new().await;
    let zones = ScalarIndexParams::for_builtin(BuiltinIndexType::ZoneMap);
    let mut dataset = set.dataset().await;
    dataset.create_index(&["id"], IndexType::ZoneMap, Some("zone_idx".into()), &zones, true).await.unwrap();
    set.append().await;
    let before = set.answers().await;
    let id = set.indexing("zonemap", "zone_idx", IndexOp::Append).await;
    let report = within(set.work("w", None).await).await.remove(0);
    assert!(matches!(report.end, JobEnd::Indexed), "{report:?}");
    assert_eq!((set.segments("zone_idx").await.1, set.answers().await), (0, before));
    assert_eq!((set.parts(&id).await.len(), set.litter().await), (0, BTreeSet::new()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_that_fails_fails_the_index_job_which_leaves_no_file() {
    for (kind, name) in INDEXES {
        let set = Set::new().await;
        set.append().await;
        let before = (set.answers().await, set.dataset().await.manifest().version);
        set.indexing(kind, name, IndexOp::Append).await;
        fail_second(&set, "part.before");
        let report = within(set.work("w", None).await).await.remove(0);
        assert!(matches!(&report.end, JobEnd::Failed { why, .. } if why.contains("on purpose")), "{report:?}");
        assert_eq!((set.answers().await, set.dataset().await.manifest().version), before);
        assert_eq!(set.litter().await, BTreeSet::new(), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn segments_that_a_dead_worker_built_are_used_by_the_next_attempt() {
    for (kind, name) in INDEXES {
        let set = Set::new().await;
        set.append().await;
        let id = set.indexing(kind, name, IndexOp::Append).await;
        let gate = hold(&set, "part.before", 2);
        let first = set.work("first", None).await;
        gate.came(3).await;
        first.abort();
        set.dies("first").await;
        hook(&set.uri, "part.before", None);
        // A version more: the parts were cut from the one before.
        set.dataset().await.delete("id = 9").await.unwrap();
        let before = set.answers().await;
        let report = within(set.work("next", None).await).await.remove(0);
        assert!(matches!(report.end, JobEnd::Indexed), "{name}: {report:?}");
        let parts = set.parts(&id).await;
        let by = |who: &str| parts.iter().filter(|part| part.worker.as_deref() == Some(who)).count();
        assert_eq!((parts.len(), by("first"), by("next")), (8, 2, 6));
        assert_eq!((set.segments(name).await, set.answers().await), ((2, 0), before), "{name}");
        assert_eq!(set.litter().await, BTreeSet::new(), "{name}");
    }
}
