// Tables without a write spec.

import assert from "node:assert/strict";
import { before, test } from "node:test";
import { Index } from "@lancedb/lancedb";
import { connect, create, held, ids, row, rows, upsert } from "../server.mjs";

let db;
before(async () => {
  db = await connect();
});

test("a table is created, found, opened, and gone when it is dropped", async () => {
  await create(db, "made", rows(1, 3));
  assert.ok((await db.tableNames()).includes("made"));
  const table = await db.openTable("made");
  assert.deepEqual(
    (await table.schema()).fields.map(({ name }) => name),
    ["id", "n", "text", "vector"],
  );
  assert.equal(await table.countRows(), 3);
  await db.dropTable("made");
  assert.ok(!(await db.tableNames()).includes("made"));
  await assert.rejects(db.openTable("made"), /not found/i);
});

test("a page of table names follows the one before it", async () => {
  for (const name of ["page-a", "page-b", "page-c"]) await create(db, name);
  const first = await db.tableNames({ startAfter: "page", limit: 2 });
  assert.deepEqual(first, ["page-a", "page-b"]);
  assert.equal((await db.tableNames({ startAfter: "page-b", limit: 1 }))[0], "page-c");
});

test("a name that is taken is refused, opened or overwritten, as the caller wants it", async () => {
  await create(db, "taken", rows(1, 3));
  await assert.rejects(create(db, "taken"), /already exists/);
  const same = await (await db.openTable("taken")).schema();
  const open = await db.createEmptyTable("taken", same, { existOk: true });
  assert.equal(await open.countRows(), 3);
  const over = await db.createTable("taken", rows(7, 8), { mode: "overwrite", schema: same });
  assert.equal(await over.countRows(), 2);
});

test("each write is read at once", async () => {
  const table = await create(db, "written");
  await table.add(rows(1, 3));
  assert.deepEqual(await held(table), [[1, 0], [2, 0], [3, 0]]);
  const merged = await upsert(table, rows(3, 4, 1));
  assert.deepEqual([merged.numInsertedRows, merged.numUpdatedRows], [1, 1]);
  assert.deepEqual(await held(table), [[1, 0], [2, 0], [3, 1], [4, 1]]);
  const updated = await table.update({ where: "id = 1", values: { n: 5 } });
  assert.equal(updated.rowsUpdated, 1);
  await table.update({ where: "id = 2", valuesSql: { n: "n + 6" } });
  const deleted = await table.delete("id = 3");
  assert.equal(deleted.numDeletedRows, 1);
  assert.deepEqual(await held(table), [[1, 5], [2, 6], [4, 1]]);
  assert.equal(await table.countRows("n > 4"), 2);
  await table.add([row(9, 9)], { mode: "overwrite" });
  assert.deepEqual(await held(table), [[9, 9]]);
});

test("rows that only the table holds go where merge_insert is told so", async () => {
  const table = await create(db, "merged", rows(1, 4));
  const merge = table.mergeInsert("id").whenMatchedUpdateAll({ where: "source.n > target.n" });
  const merged = await merge.whenNotMatchedBySourceDelete({ where: "id > 3" }).execute([row(1, 1), row(2, -1)]);
  assert.deepEqual([merged.numUpdatedRows, merged.numDeletedRows, merged.numInsertedRows], [1, 1, 0]);
  assert.deepEqual(await held(table), [[1, 1], [2, 0], [3, 0]]);
});

test("rows are found by filter, limit, offset, order and chosen columns", async () => {
  const table = await create(db, "queried", rows(1, 20));
  const by = { columnName: "id", ascending: false };
  const found = await table.query().where("id > 5").orderBy(by).limit(3).offset(1).select(["id"]).toArray();
  assert.deepEqual(found.map((one) => ({ ...one })), [{ id: 19 }, { id: 18 }, { id: 17 }]);
  const [one] = await table.query().where("id = 4").select({ twice: "id * 2" }).toArray();
  assert.equal(Number(one.twice), 8);
  const taken = await table.takeOffsets([0, 2]).select(["id"]).toArray();
  assert.deepEqual(ids(taken), [1, 3]);
  assert.match(await table.query().where("id = 4").explainPlan(), /LanceRead|LanceScan/);
});

test("vectors and words are found, with and without an index", async () => {
  const table = await create(db, "searched", rows(1, 300));
  const near = () => table.search([7.1, 0]).limit(2).toArray();
  assert.deepEqual(ids(await near()), [7, 8]);
  const after = table.vectorSearch([7.1, 0]).where("id > 8").distanceType("l2").limit(1);
  assert.deepEqual(ids(await after.toArray()), [9]);
  await table.createIndex("vector", { config: Index.ivfFlat({ numPartitions: 2 }), waitTimeoutSeconds: 60 });
  assert.deepEqual(ids(await near()), [7, 8]);
  await table.createIndex("text", { config: Index.fts(), waitTimeoutSeconds: 60 });
  assert.deepEqual(ids(await table.search("word7", "fts").limit(5).toArray()), [7]);
  const words = table.query().fullTextSearch("word7 word9").where("id > 8").limit(5);
  assert.deepEqual(ids(await words.toArray()), [9]);
  await table.add([row(301)]);
  assert.deepEqual(ids(await table.search("word301", "fts").limit(5).toArray()), [301]);
});

test("an index is listed with its state, waited for, and dropped", async () => {
  const table = await create(db, "indexed", rows(1, 50));
  const job = await table.createIndexAsync("n", { config: Index.btree() });
  await job.wait();
  assert.equal(await job.status(), "finished");
  await table.waitForIndex(["n_idx"], 60);
  const [index] = await table.listIndices();
  assert.deepEqual([index.name, index.indexType, index.columns], ["n_idx", "BTree", ["n"]]);
  await table.add(rows(51, 60));
  const stats = await table.indexStats("n_idx");
  assert.deepEqual([stats.indexType, stats.numIndexedRows, stats.numUnindexedRows], ["BTREE", 50, 10]);
  assert.equal(await table.indexStats("none_idx"), undefined);
  assert.equal((await table.stats()).numIndices, 1);
  await table.dropIndex("n_idx");
  assert.deepEqual(await table.listIndices(), []);
});

test("a version is read, tagged and gone back to", async () => {
  const table = await create(db, "versions", rows(1, 2));
  const old = await table.version();
  await table.add([row(3)]);
  assert.ok((await table.version()) > old);
  const tags = await table.tags();
  await tags.create("first", old);
  assert.equal(await tags.getVersion("first"), old);
  await assert.rejects(tags.create("first", old), /first/);
  await table.checkout("first");
  assert.deepEqual(await held(table), [[1, 0], [2, 0]]);
  await table.checkoutLatest();
  assert.equal(await table.countRows(), 3);
  await tags.update("first", await table.version());
  assert.equal((await tags.list()).first.version, await table.version());
  await tags.delete("first");
  assert.deepEqual(await tags.list(), {});
  await table.checkout(old);
  await table.restore();
  assert.equal(await table.countRows(), 2);
  const versions = (await table.listVersions()).map(({ version }) => version);
  assert.equal(Math.max(...versions), await table.version());
});

test("columns are added, renamed and dropped", async () => {
  const table = await create(db, "columns", rows(1, 2));
  await table.addColumns([{ name: "twice", valueSql: "id * 2" }]);
  await table.alterColumns([{ path: "twice", rename: "double" }]);
  assert.deepEqual((await table.query().select(["double"]).toArray()).map((one) => Number(one.double)), [2, 4]);
  await table.dropColumns(["double"]);
  assert.deepEqual((await table.schema()).fields.map(({ name }) => name), ["id", "n", "text", "vector"]);
});

test("what the table holds is told", async () => {
  const table = await create(db, "told", rows(1, 5));
  const stats = await table.stats();
  assert.deepEqual([stats.numRows, stats.fragmentStats.numFragments], [5, 1]);
  assert.ok(stats.totalBytes > 0);
});

test("what cannot be done is refused with the reason", async () => {
  const table = await create(db, "refused", rows(1, 2));
  await assert.rejects(table.query().where("nothing = 1").toArray(), /400[^]*nothing/);
  await assert.rejects(table.countRows("id ="), /400/);
  await assert.rejects(table.update({ where: "true", valuesSql: { nothing: "1" } }), /400[^]*nothing/);
  await assert.rejects(table.delete("nothing = 1"), /400[^]*nothing/);
  await assert.rejects(table.search([1, 2, 3]).limit(1).toArray(), /400/);
  await assert.rejects(table.createIndex("nothing"), /nothing/);
  await assert.rejects(table.dropIndex("none_idx"), /none_idx/);
  await assert.rejects(table.checkout(99), /99|not found/);
  await assert.rejects(table.optimize(), /not supported/i);
  await assert.rejects(db.openTable("nothing"), /not found/);
  await assert.rejects(db.dropTable("nothing"), /nothing/);
  assert.deepEqual(await held(table), [[1, 0], [2, 0]]);
});
