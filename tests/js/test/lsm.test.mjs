// Tables that take LSM writes, and the jobs that work on them.

import assert from "node:assert/strict";
import { before, describe, test } from "node:test";
import { Index } from "@lancedb/lancedb";
import { KEY, connect, create, held, ids, keyless, row, rows, upsert } from "../server.mjs";

const UNSHARDED = { specType: "unsharded" };
const SPECS = {
  unsharded: UNSHARDED,
  bucket: { specType: "bucket", column: "id", numBuckets: 3 },
  identity: { specType: "identity", column: "id" },
};

let db, still;
before(async () => {
  db = await connect();
  still = await connect("CARETAKER_STILL_URL");
});

const sstables = async (table, rows) => (await table.getLsmStats(rows)).buckets.flatMap(({ generations }) => generations);

// A checkpoint looks every five seconds: they wait together.
describe("LSM", { concurrency: true }, () => {
  test("each LSM write is read at once, and stays read when it is folded", async () => {
    const each = Object.entries(SPECS).map(async ([name, spec]) => {
      const table = await create(db, `lsm ${name}`, rows(1, 3), spec);
      const merged = await upsert(table, rows(3, 4, 1));
      assert.equal(merged.numRows, 2);
      assert.deepEqual(await held(table), [[1, 0], [2, 0], [3, 1], [4, 1]], name);
      assert.deepEqual(await held(table, true), await held(table), name);
      assert.deepEqual(await held(table, false), [[1, 0], [2, 0], [3, 0]], name);
      await table.add([row(5, 2)]);
      await table.update({ where: "id = 1", values: { n: 7 } });
      await table.delete("id = 2");
      const expected = [[1, 7], [3, 1], [4, 1], [5, 2]];
      assert.deepEqual(await held(table), expected, name);
      assert.equal(await table.countRows(), 4, name);
      assert.equal(await table.countRows("n = 1"), 2, name);
      await table.checkpointLsm();
      assert.deepEqual(await sstables(table), [], name);
      assert.deepEqual(await held(table), expected, name);
      assert.deepEqual(await held(table, false), expected, name);
    });
    await Promise.all(each);
  });

  test("a search finds rows that no index holds yet", async () => {
    const table = await create(db, "lsm searched", rows(1, 300));
    await table.createIndex("vector", { config: Index.ivfFlat({ numPartitions: 2 }), waitTimeoutSeconds: 60 });
    await table.createIndex("text", { config: Index.fts(), waitTimeoutSeconds: 60 });
    await table.setLsmWriteSpec(UNSHARDED);
    await upsert(table, [row(400, 1), { ...row(7, 1), vector: [500, 0] }]);
    for (const turn of ["in memory", "in an SSTable"]) {
      assert.deepEqual(ids(await table.search([7.1, 0]).limit(1).toArray()), [8], turn);
      assert.deepEqual(ids(await table.vectorSearch([499, 0]).limit(2).toArray()), [7, 400], turn);
      const found = await table.search("word400", "fts").limit(5).toArray();
      assert.deepEqual(ids(found), [400], turn);
      await table.flushLsm();
    }
    await table.checkpointLsm();
    assert.deepEqual(ids(await table.search("word400", "fts", "text").limit(5).toArray()), [400]);
  });

  test("a write spec is set, read, refused a second time, and unset", async () => {
    const table = await keyless(db, "lsm spec");
    assert.equal(await table.getLsmWriteSpec(), undefined);
    assert.equal(await table.getLsmStats(), undefined);
    await assert.rejects(table.setLsmWriteSpec(UNSHARDED), /primary key/);
    await table.updateFieldMetadata([{ path: "id", metadata: KEY }]);
    await table.setLsmWriteSpec({ ...SPECS.bucket, writerConfigDefaults: { max_memtable_rows: "5000" } });
    const spec = await table.getLsmWriteSpec();
    assert.deepEqual([spec.specType, spec.column, spec.numBuckets], ["bucket", "id", 3]);
    assert.deepEqual(spec.writerConfigDefaults, { max_memtable_rows: "5000" });
    await assert.rejects(table.setLsmWriteSpec(UNSHARDED), /already|spec/);
    await upsert(table, rows(1, 5, 1));
    await table.unsetLsmWriteSpec();
    assert.equal(await table.getLsmWriteSpec(), undefined);
    assert.equal((await held(table)).length, 5);
    await upsert(table, [row(1, 2)]);
    assert.deepEqual((await held(table))[0], [1, 2]);
  });

  test("the stats tell of memtables, of SSTables, and of rows where they are asked for", async () => {
    const table = await create(db, "lsm stats", [], UNSHARDED);
    await upsert(table, rows(1, 5));
    const [bucket] = (await table.getLsmStats()).buckets;
    assert.deepEqual([bucket.status, bucket.compacting, bucket.generations], ["Active", false, []]);
    assert.equal(bucket.memtables.at(-1).rows, 5);
    await table.flushLsm();
    const [sstable] = await sstables(table);
    assert.ok(sstable.bytes > 0 && sstable.rows === undefined);
    assert.equal((await sstables(table, true))[0].rows, 5);
    assert.equal((await table.getLsmStats()).buckets[0].memtables.at(-1).rows, 0);
  });

  test("useLsm is refused where there is no write spec, and false means the base", async () => {
    const plain = await create(db, "lsm none", rows(1, 1));
    await assert.rejects(plain.query().useLsm(true).toArray(), /400/);
    await assert.rejects(plain.mergeInsert("id").whenMatchedUpdateAll().useLsm(true).execute(rows(1, 1)), /400/);
    for (const call of ["flushLsm", "compactLsm", "checkpointLsm", "unsetLsmWriteSpec"]) {
      await assert.rejects(plain[call](), /400/, call);
    }
    const table = await create(db, "lsm past", rows(1, 1), UNSHARDED);
    const past = table.mergeInsert("id").whenMatchedUpdateAll().whenNotMatchedInsertAll().useLsm(false);
    assert.equal((await past.execute(rows(2, 2))).numInsertedRows, 1);
    assert.deepEqual(await held(table, false), [[1, 0], [2, 0]]);
    assert.deepEqual(await held(table), [[1, 0], [2, 0]]);
  });

  test("what an LSM table cannot do is refused with the reason", async () => {
    const table = await create(db, "lsm refused", rows(1, 2), UNSHARDED);
    await assert.rejects(table.query().withRowId().toArray(), /does not support with_row_id/);
    const merge = table.mergeInsert("id").whenMatchedUpdateAll({ where: "source.n > target.n" });
    await assert.rejects(merge.execute(rows(1, 1)), /400/);
    await assert.rejects(table.mergeInsert("n").whenMatchedUpdateAll().whenNotMatchedInsertAll().execute(rows(1, 1)), /400/);
    await assert.rejects(table.delete("nothing = 1"), /400[^]*nothing/);
    await assert.rejects(table.query().where("nothing = 1").toArray(), /400[^]*nothing/);
    const version = await table.version();
    await upsert(table, [row(3)]);
    await table.checkpointLsm();
    await table.checkout(version);
    await assert.rejects(table.restore(), /400[^]*write spec/);
    const gone = await create(db, "lsm gone", [], UNSHARDED);
    await db.dropTable("lsm gone");
    await assert.rejects(gone.flushLsm(), /not found/i);
  });

  test("a pass is a job that is listed, described and done", async () => {
    const table = await create(db, "lsm jobs", [], UNSHARDED);
    await upsert(table, rows(1, 5));
    await table.checkpointLsm();
    const jobs = (await db.listJobs()).filter(({ table }) => table === "lsm jobs");
    const fold = jobs.find(({ jobType }) => jobType === "memwal_compaction");
    assert.ok(fold, JSON.stringify(jobs));
    assert.ok(Math.abs(fold.createdAtMillis - Date.now()) < 600_000);
    const job = await db.openJob(fold.jobId);
    await job.wait();
    assert.deepEqual([await job.status(), job.jobType, job.failure], ["finished", "memwal_compaction", null]);
    assert.ok(job.creationMs === fold.createdAtMillis && job.spec && job.result);
    const events = (await job.events()).toArray();
    assert.ok(events.length >= 2 && events.every((event) => event.state));
    const claims = await job.events({ filter: "state IN ('claim', 'claim_complete')", limit: 2 });
    assert.deepEqual(claims.toArray().map(({ state }) => state), ["claim", "claim_complete"]);
    await assert.rejects(job.events({ filter: "nothing = 1" }), /nothing/);
    // It has ended: to cancel it changes nothing.
    assert.equal(await db.cancelJob(fold.jobId), true);
    assert.equal(await job.status(), "finished");
  });

  test("a job that waits is cancelled, and a shard that has one is refused another", async () => {
    const table = await create(still, "waits", [], UNSHARDED);
    await upsert(table, rows(1, 5));
    await table.flushLsm();
    await table.compactLsm();
    await assert.rejects(table.compactLsm(), /429/);
    assert.equal((await table.getLsmStats()).buckets[0].compacting, true);
    const [waiting] = (await still.listJobs()).filter(({ table }) => table === "waits");
    const job = await still.openJob(waiting.jobId);
    assert.equal(await job.status(), "running");
    assert.equal(await still.cancelJob(waiting.jobId), true);
    assert.equal(await job.status(), "cancelled");
    await assert.rejects(job.wait(), /cancel/i);
    assert.equal((await table.getLsmStats()).buckets[0].compacting, false);
    await table.compactLsm();
    assert.deepEqual(await held(table), rows(1, 5).map(({ id }) => [id, 0]));
  });

  test("a job that nobody knows is not found", async () => {
    assert.equal(await db.cancelJob("none"), false);
    await assert.rejects(async () => (await db.openJob("none")).refresh(), /none/);
  });
});
