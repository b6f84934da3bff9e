// The planner's one door, typed. The planner's `wire` module documents the requests.

import init, { call } from './generated/planner.js';
import address from './generated/planner_bg.wasm?url';

export interface Knob {
  key: string;
  unit: 'count' | 'bytes' | 'seconds';
  /** In the written unit: things, bytes, seconds. */
  min: number;
  max: number;
  zero: string | null;
  help: string;
  /** The default, as a person writes it. */
  text: string;
}

export interface Description {
  name: string;
  version: string;
  triggers: string[];
  knobs: Knob[];
  workload: {
    knobs: Knob[];
    presets: { name: string; help: string; set: Changes }[];
    limits: { duration_ms: [number, number]; samples: [number, number]; faults: number; jobs: number };
  };
}

/** A policy as the planner reads it; only handed back to it. */
export type Policy = Record<string, unknown>;

/** Knobs that somebody set, as written. */
export type Changes = Record<string, string>;

export interface CheckedPolicy {
  policy: Policy;
  lint: { key: string; why: string }[];
  /** A settings file. */
  toml: string;
  /** The text that a record's hash is made of. */
  canonical: string;
}

export interface Reason {
  measure: string;
  /** `null`: unmeasured. */
  observed: number | null;
  threshold: number | null;
  subject?: string;
}

export type Job =
  | { job: 'fold'; shard: string; sstables: { generation: number }[]; bytes?: number }
  | { job: 'retire'; shard: string; sstables: { generation: number }[] }
  | { job: 'catch_up'; kind: string; indexes: string[] }
  | { job: 'collect'; shard: string; files: unknown[]; bytes: number }
  | { job: 'index'; kind: string; indexes: string[]; op: 'append' | 'merge' | 'reindex' }
  | { job: 'compact'; tasks: number[][]; deferred: boolean; predicted: { fragments: number; bytes?: number } }
  | { job: 'cleanup'; min_age_ms: number }
  | { job: 'remap'; indexes: string[] };

export type Hold =
  | { by: 'pass'; holder: string; since_ms: number }
  | { by: 'index'; index: string }
  | { by: 'retained'; version: string }
  | { by: 'running'; kind: string; holder: string; since_ms: number }
  | { by: 'compaction'; holder?: string; since_ms?: number }
  | { by: 'catch_up'; index: string }
  | { by: 'failing'; kind: string; times: number; until_ms: number }
  | { by: 'clone'; table: string }
  | { by: 'remap'; rewrites: number }
  | { by: 'mismatch'; kind: string; at_ms: number }
  | { by: 'sealed' | 'detached' | 'paused' | 'no_primary_key' };

export type Outcome = 'due' | 'not_due' | 'held' | 'disabled';

export type Verdict = { decision: string; shard?: string } & (
  | { outcome: 'due'; jobs: Job[]; reasons: Reason[] }
  | { outcome: 'not_due'; reasons: Reason[]; due_at_ms?: number }
  | { outcome: 'held'; hold: Hold; reasons: Reason[] }
  | { outcome: 'disabled'; knob: string }
);

export interface Plan {
  table: string;
  version: number;
  at_ms: number;
  verdicts: Verdict[];
  /** Absent: unbounded. */
  staleness_bound_ms?: number;
  /** What the table's own config says that can't be followed. */
  complaints?: { key: string; why: string }[];
}

export interface Drawing {
  facts: string | null;
  plan: string | null;
}

export interface Answer {
  plan: Plan;
  /** The plan as the planner wrote it. */
  text: Json;
}

/** The planner refused a request; the message is its own. */
export class Refused extends Error {}

/** JSON text that is handed on as it stands: a 64-bit number survives it, but not `JSON.parse`. */
export class Json {
  constructor(readonly text: string) {}
}

type Value = Json | string | number | object;

const OK = '{"ok":';

/** Loads the planner. Everything below works only after it. */
export async function open(): Promise<void> {
  await init({ module_or_path: address });
}

/** One request; the answer as text, without its envelope. Throws `Refused`. */
function ask(op: string, fields: Record<string, Value>): Json {
  const request: Record<string, Value> = { op, ...fields };
  const members = Object.entries(request).map(
    ([key, value]) => `${JSON.stringify(key)}:${value instanceof Json ? value.text : JSON.stringify(value)}`,
  );
  const answer = call(`{${members.join(',')}}`);
  if (answer.startsWith(OK)) return new Json(answer.slice(OK.length, -1));
  throw new Refused((JSON.parse(answer) as { error: { message: string } }).error.message);
}

export function describe(): Description {
  return JSON.parse(ask('describe', {}).text) as Description;
}

/** Defaults with the knobs of `set` on top, each as a person writes it. */
export function policy(set: Changes): CheckedPolicy {
  return JSON.parse(ask('policy', { set }).text) as CheckedPolicy;
}

/** What is to be done on a table. */
export function plan(facts: Json, policy: Policy, now_ms: number, trigger: string): Answer {
  const text = ask('plan_table', { facts, policy, now_ms, trigger });
  return { plan: JSON.parse(text.text) as Plan, text };
}

/** Facts and a plan as text. */
export function drawing(facts: Json, plan: Json, now_ms: number): Drawing {
  return JSON.parse(ask('draw', { facts, plan, now_ms }).text) as Drawing;
}

/** What is written to a table, as the planner reads it; only handed back to it. */
export type Workload = Record<string, unknown>;

/** A preset with the knobs of `set` on top. */
export function workload(preset: string, set: Changes): Workload {
  const answer = ask('workload', { ...(preset ? { preset } : {}), set });
  return (JSON.parse(answer.text) as { workload: Workload }).workload;
}

/** Something that goes wrong in a simulation. */
export interface Fault {
  fault: string;
  /** Since the start. */
  at_ms: number;
  silent_ms?: number;
  for_ms?: number;
  by_ms?: number;
  times?: number;
}

export interface Simulation {
  workload: Workload;
  policy: Policy;
  /** A real table to start from. */
  facts?: Json;
  start_ms?: number;
  duration_ms: number;
  seed: number;
  faults: Fault[];
  samples: number;
}

/** A number for each entry of a timeline. */
export type Series = number[];

export interface RanJob {
  id: number;
  kind: string;
  decision: string;
  shard?: string;
  enqueued_ms: number;
  started_ms?: number;
  ended_ms?: number;
  outcome: 'open' | 'done' | 'failed' | 'conflict';
  attempts: number;
  read_bytes: number;
  written_bytes: number;
  why?: Reason;
}

interface Spread {
  p50: number;
  p99: number;
  max: number;
}

export interface Totals {
  rows: number;
  bytes: number;
  flushes: number;
  commits: number;
  passes: number;
  folded: number;
  jobs: Record<string, { done: number; failed: number; conflicts: number; lost: number; open: number; written_bytes: number; busy_ms: number }>;
  written_bytes: Record<string, number>;
  write_amplification_permille: number;
  space_amplification_permille: number;
  staleness: { over_time: Spread; bound_ms: number | null; longest_fold_ms: number; above: boolean };
  queue_wait: Spread;
  failures: number;
  stalled_ms: number;
  unfolded_max: number;
  versions: number;
}

export type SampleName =
  | 'unfolded' | 'unfolded_bytes' | 'staleness_ms' | 'unindexed_rows' | 'base_rows' | 'fragments'
  | 'small_fragments' | 'deleted_rows' | 'versions' | 'disk_bytes' | 'garbage_bytes' | 'running'
  | 'queued' | 'stalled_ms';

/** What happened in a simulation; times are milliseconds since its start. */
export interface Timeline {
  start_ms: number;
  duration_ms: number;
  samples: { every_ms: number; at_ms: Series } & Record<SampleName, Series>;
  jobs: RanJob[];
  jobs_left_out: Record<string, number>;
  faults: Fault[];
  totals: Totals;
}

/** Runs a workload under a policy. */
export function simulate(simulation: Simulation): Timeline {
  const fields = Object.entries(simulation).filter(([, value]) => value !== undefined) as [string, Value][];
  return JSON.parse(ask('simulate', Object.fromEntries(fields)).text) as Timeline;
}
