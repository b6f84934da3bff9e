// Facts as they might be soon: a table that grew, or was rid of what holds it. For questions of "what if".

import type { Hold } from './door';

/** Only what is changed here; the rest is handed on. */
interface SsTable { generation: number; path: string; bytes?: number; rows?: number; flushed_at_ms?: number }
interface Shard {
  shard: string;
  sstables?: SsTable[];
  compacted_generation?: number;
  caught_up?: Record<string, number>;
  retained_generation?: number;
  pass?: unknown;
}
interface Index { name: string; unindexed_rows?: number; unindexed_since_ms?: number; segments?: number }
interface Fragment { id: number; rows: number; deleted?: number; bytes?: number }
export interface Facts {
  table: string;
  version: number;
  rows?: number;
  indexes?: Index[];
  shards?: Shard[];
  fragments?: Fragment[];
  cleanup?: unknown;
  remap?: { rewrites: number; oldest_at_ms?: number; indexes?: string[] };
  paused?: boolean;
  running?: { kind: string }[];
  failed?: { kind: string }[];
  mismatch?: unknown;
  clones?: string[];
  overrides?: Record<string, string>;
}

export type Growth =
  | { of: 'sstables'; shard?: string }
  | { of: 'folds'; shard?: string }
  | { of: 'rows' | 'segments'; index: string }
  | { of: 'fragments' | 'versions' | 'rewrites' };

/** Things made one by one; more of them than this are not made. */
export const THINGS_MAX = 512;
const SMALL_ROWS = 1_000;

/** `facts` with `more` of something, written now. */
export function grow(facts: Facts, growth: Growth, more: number, now_ms: number): Facts {
  const grown = structuredClone(facts);
  const shards = (grown.shards ?? []).filter((shard) => !('shard' in growth && growth.shard) || shard.shard === growth.shard);
  switch (growth.of) {
    case 'sstables':
      for (const shard of shards) flush(shard, Math.min(more, THINGS_MAX), now_ms);
      break;
    case 'folds':
      for (const shard of shards) fold(shard, more);
      break;
    case 'rows':
    case 'segments':
      for (const index of (grown.indexes ?? []).filter(({ name }) => name === growth.index)) {
        if (growth.of === 'segments') index.segments = (index.segments ?? 0) + more;
        else index.unindexed_rows = (index.unindexed_rows ?? 0) + more;
      }
      break;
    case 'fragments':
      append(grown, Math.min(more, THINGS_MAX));
      break;
    case 'versions':
      grown.version += more;
      break;
    case 'rewrites':
      grown.remap = { ...grown.remap, rewrites: (grown.remap?.rewrites ?? 0) + more };
      break;
  }
  return grown;
}

/** SSTables like the newest one. */
function flush(shard: Shard, more: number, now_ms: number): void {
  const listed = (shard.sstables ??= []);
  const newest = listed.reduce<SsTable | undefined>((a, b) => (a && a.generation > b.generation ? a : b), undefined);
  const sized = listed.filter((s) => s.bytes !== undefined).at(-1);
  const first = Math.max(newest?.generation ?? 0, shard.compacted_generation ?? 0) + 1;
  for (let at = 0; at < more; at += 1) {
    const generation = first + at;
    const { bytes, rows } = sized ?? newest ?? {};
    listed.push({ generation, path: `next_gen_${generation}`, bytes: bytes ?? 16 << 20, rows: rows ?? SMALL_ROWS, flushed_at_ms: now_ms });
  }
}

/** The next `more` generations are in the base. */
function fold(shard: Shard, more: number): void {
  const folded = shard.compacted_generation ?? 0;
  const newest = Math.max(folded, ...(shard.sstables ?? []).map((s) => s.generation));
  shard.compacted_generation = Math.max(newest, folded + more);
}

/** Small fragments at the end of the table, with as many bytes a row as its last. */
function append(facts: Facts, more: number): void {
  const fragments = (facts.fragments ??= []);
  const last = fragments.at(-1);
  const bytes = last?.bytes === undefined ? {} : { bytes: Math.ceil((last.bytes / Math.max(1, last.rows)) * SMALL_ROWS) };
  for (let at = 1; at <= more; at += 1) {
    fragments.push({ ...last, id: (last?.id ?? -1) + at, rows: SMALL_ROWS, deleted: 0, ...bytes });
  }
}

/** `facts` without what holds a verdict back, or nothing where that is not a matter of facts. */
export function release(facts: Facts, hold: Hold, shard: string | undefined): Facts | undefined {
  const free = structuredClone(facts);
  const mine = (free.shards ?? []).filter((s) => shard === undefined || s.shard === shard);
  switch (hold.by) {
    case 'pass':
      for (const one of mine) delete one.pass;
      return free;
    case 'index':
    case 'catch_up':
      for (const one of mine) one.caught_up = { ...one.caught_up, [hold.index]: one.compacted_generation ?? 0 };
      return free;
    case 'retained':
      for (const one of mine) one.retained_generation = one.compacted_generation ?? 0;
      return free;
    case 'paused':
      free.paused = false;
      if (free.overrides) delete free.overrides['caretaker.paused'];
      return free;
    case 'mismatch':
      delete free.mismatch;
      return free;
    case 'clone':
      free.clones = [];
      return free;
    case 'running':
      free.running = (free.running ?? []).filter(({ kind }) => kind !== hold.kind);
      return free;
    case 'compaction':
      free.running = (free.running ?? []).filter(({ kind }) => !kind.startsWith('compact'));
      return hold.holder === undefined ? undefined : free;
    case 'remap':
      free.remap = { rewrites: 0 };
      return free;
    default:
      return undefined;
  }
}
