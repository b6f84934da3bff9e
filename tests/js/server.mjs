// LanceDB's client for Node.js against the server that the environment names, and tables for tests.

import * as lancedb from "@lancedb/lancedb";
import { Field, Float32, FixedSizeList, Int32, Schema, Utf8 } from "apache-arrow";

// One try: what the server says is what a test sees.
const ONCE = { retryConfig: { retries: 0, connectRetries: 0, readRetries: 0 } };

/** A database of the server whose address is in that variable. */
export const connect = (which = "CARETAKER_URL", clientConfig = ONCE) =>
  lancedb.connect("db://dev", { apiKey: "none", hostOverride: process.env[which], clientConfig });

/** What marks a column as the primary key. */
export const KEY = {
  "lance-schema:unenforced-primary-key": "true",
  "lance-schema:unenforced-primary-key:position": "1",
};

const schema = (key) =>
  new Schema([
    new Field("id", new Int32(), false, key),
    new Field("n", new Int32(), true),
    new Field("text", new Utf8(), true),
    new Field("vector", new FixedSizeList(2, new Field("item", new Float32(), true)), true),
  ]);

/** A row whose other values follow from its key and `n`. */
export const row = (id, n = 0) => ({ id, n, text: `word${id} of ${n}`, vector: [id, 0] });

/** Rows with the keys `from` to `to`. */
export const rows = (from, to, n = 0) => Array.from({ length: to - from + 1 }, (_, i) => row(from + i, n));

/** A table of these rows, which takes LSM writes where a spec is given. */
export async function create(db, name, data = [], spec = null) {
  const table = await db.createEmptyTable(name, schema(new Map(Object.entries(KEY))));
  if (data.length) await table.add(data);
  if (spec) await table.setLsmWriteSpec(spec);
  return table;
}

/** A table that nobody gave a key yet. */
export const keyless = (db, name) => db.createEmptyTable(name, schema(new Map()));

export const upsert = (table, data) =>
  table.mergeInsert("id").whenMatchedUpdateAll().whenNotMatchedInsertAll().execute(data);

/** Every key with its number, by key; a key that comes twice does so here. */
export async function held(table, lsm) {
  const query = table.query().select(["id", "n"]).limit(10_000);
  const found = await (lsm === undefined ? query : query.useLsm(lsm)).toArray();
  return found.map(({ id, n }) => [id, n]).sort(([a], [b]) => a - b);
}

export const ids = (found) => found.map(({ id }) => id);
