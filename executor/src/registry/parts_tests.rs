//! What parts leave, on both engines.

use super::tests::{Set, T, new, postgres, remap, sqlite, table, want};
use super::*;
use crate::error::Error;
use crate::report::JobEnd;

#[tokio::test(flavor = "multi_thread")]
async fn what_parts_left_is_taken_once_and_only_under_the_lease_of_their_job() {
    taken_once(sqlite().await).await;
    taken_once(postgres().await).await;
}

async fn taken_once(set: Set) {
    set.put(vec![new(T, &remap())]).await;
    let old = set.take("old").await.expect("it waits");
    let part = |n: u64| NewJob::part(&old.jobs[0], table(T), "compact_task", n.to_string());
    set.put((0..4).map(part).collect()).await;
    let done = |n: u64| JobEnd::Part { output: serde_json::json!({ "n": n }) };
    let mine = Want { parent: Some(old.jobs[0].id.clone()), ..want("other") };
    let take = async || set.registry.claim(&mine, 0).await.expect("it answers").expect("a part waits");
    let (first, late) = (take().await, take().await);
    set.end(&first, done(1)).await.expect("written");
    set.silence().await;
    assert_eq!(set.registry.reap().await.expect("it answers"), 2, "the job and a part that runs");
    let refused = set.registry.take_outputs(&old.jobs[0]).await;
    assert!(matches!(refused, Err(Error::Superseded(_))), "{refused:?}");
    let next = set.take("next").await.expect("again");
    let parts = set.registry.parts(&next.jobs[0].id).await.expect("read");
    assert_eq!((parts.len(), parts.iter().filter(|part| part.output).count()), (4, 1));
    let running = take().await;
    let taken = set.registry.take_outputs(&next.jobs[0]).await.expect("its own");
    assert_eq!(taken, [(first.jobs[0].id.clone(), serde_json::json!({ "n": 1 }))]);
    assert!(set.registry.take_outputs(&next.jobs[0]).await.expect("its own").is_empty());
    for too_late in [&late, &running] {
        let refused = set.end(too_late, done(2)).await;
        assert!(matches!(refused, Err(Error::Superseded(_))), "{refused:?}");
    }
    set.registry.finish(&running.jobs[0], &Ended::Asked).await.expect("written");
    set.end(&next, JobEnd::Remapped).await.expect("written");
    let parts = set.registry.parts(&next.jobs[0].id).await.expect("read");
    assert!(parts.iter().all(|part| part.state.is_end() && !part.output), "{parts:?}");
}
