// The planner's one door, typed. The planner's `wire` module documents the requests.

import init, { call } from './generated/planner.js';
import address from './generated/planner_bg.wasm?url';

export interface Knob {
  key: string;
  unit: 'count' | 'bytes' | 'seconds';
  zero: string | null;
  help: string;
  /** The default, as a person writes it. */
  text: string;
}

export interface Description {
  version: string;
  triggers: string[];
  knobs: Knob[];
}

/** A policy as the planner reads it; only handed back to it. */
export type Policy = Record<string, unknown>;

export interface CheckedPolicy {
  policy: Policy;
  lint: { key: string; why: string }[];
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
  drawing: Drawing;
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
export function policy(set: Record<string, string>): CheckedPolicy {
  return JSON.parse(ask('policy', { set }).text) as CheckedPolicy;
}

/** The plan and its drawing. */
export function plan(facts: Json, policy: Policy, now_ms: number, trigger: string): Answer {
  const plan = ask('plan_table', { facts, policy, now_ms, trigger });
  const drawing = ask('draw', { facts, plan, now_ms });
  return { plan: JSON.parse(plan.text) as Plan, drawing: JSON.parse(drawing.text) as Drawing };
}
