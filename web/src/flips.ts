// What would change a verdict: a knob, time, a table that grew, or a hold that went. Each answer was
// given by the planner for exactly that case; nothing is concluded from the numbers alone.

import * as door from './door';
import { grow, release, THINGS_MAX } from './grow';
import type { Facts, Growth } from './grow';
import { isExact } from './json';
import { bytes, count, many } from './units';
import { MEASURES, holder } from './words';

export interface Asked {
  facts: string;
  set: door.Changes;
  now_ms: number;
  trigger: string;
}

export type Flip = { then: door.Outcome } & (
  | { by: 'time'; at_ms: number }
  /** `limit` in words: `at 5 or more`; `text` is the value nearest to the present one that does it. */
  | { by: 'knob'; key: string; limit: string; text: string }
  | { by: 'growth'; what: string; growth: Growth; more: number }
  | { by: 'release'; what: string }
);

export type Flips = Record<number, Flip[]>;

/** A plan holds so many verdicts for its table, then so many for each shard. */
const TABLE_DECISIONS = 5;
const SHARD_DECISIONS = 3;
const MORE_MAX = 2 ** 40;
/** What a knob that is 0 for "off" is tried with. */
const ON = '7d';

/** What would change each verdict that is `wanted`, by its place in `plan`; the nearest first. */
export function flips(asked: Asked, plan: door.Plan, knobs: door.Knob[], wanted: number[]): Flips {
  const parsed = isExact(asked.facts) ? (JSON.parse(asked.facts) as Facts) : undefined;
  const whole = new Search(asked, parsed, knobs);
  const alone = new Map<string, Search>();
  const found: Flips = {};
  for (const at of wanted) {
    const verdict = plan.verdicts[at];
    if (!verdict) continue;
    const { shard } = verdict;
    if (shard === undefined || !parsed) {
      found[at] = whole.of(verdict, at);
      continue;
    }
    // A shard's decisions look at the table and at no other shard, so these questions are short.
    const facts: Facts = { ...parsed, fragments: undefined, shards: parsed.shards?.filter((one) => one.shard === shard) };
    const search = alone.get(shard) ?? new Search({ ...asked, facts: JSON.stringify(facts) }, facts, knobs);
    alone.set(shard, search);
    found[at] = search.of(verdict, TABLE_DECISIONS + (at - TABLE_DECISIONS) % SHARD_DECISIONS);
  }
  return found;
}

class Search {
  readonly #facts: door.Json;
  readonly #policy: door.Policy;
  /** The settings file of the policy: the one place where the planner writes every knob. */
  readonly #toml: string;

  constructor(
    readonly asked: Asked,
    /** Nothing where numbers are too large to be changed here. */
    readonly parsed: Facts | undefined,
    readonly knobs: door.Knob[],
  ) {
    this.#facts = new door.Json(asked.facts);
    ({ policy: this.#policy, toml: this.#toml } = door.policy(asked.set));
  }

  of(verdict: door.Verdict, at: number): Flip[] {
    if (verdict.outcome === 'disabled') return this.#switched(verdict.knob, at);
    const found = verdict.outcome === 'not_due' ? this.#byTime(verdict.due_at_ms, at) : [];
    if (verdict.outcome === 'held') return this.#released(verdict, at);
    if (verdict.outcome === 'not_due') found.push(...this.#grown(verdict, at));
    const keys = verdict.reasons.map(({ measure, observed }) => [MEASURES[measure]?.knob, observed] as const);
    const seen = new Set<string>();
    for (const [key, observed] of keys) {
      if (!key || seen.has(key)) continue;
      seen.add(key);
      found.push(...this.#byKnob(key, observed, verdict.outcome === 'due', at));
    }
    return found;
  }

  /** The verdict in another case; nothing where the planner refuses it. */
  #then(at: number, other: { facts?: Facts; set?: door.Changes; now_ms?: number }): door.Outcome | undefined {
    const { asked } = this;
    const facts = other.facts ? new door.Json(JSON.stringify(other.facts)) : this.#facts;
    const policy = other.set ? door.policy({ ...asked.set, ...other.set }).policy : this.#policy;
    try {
      return door.plan(facts, policy, other.now_ms ?? asked.now_ms, asked.trigger).plan.verdicts[at]?.outcome;
    } catch (refused) {
      if (refused instanceof door.Refused) return undefined;
      throw refused;
    }
  }

  #byTime(due_at_ms: number | undefined, at: number): Flip[] {
    if (due_at_ms === undefined) return [];
    const then = this.#then(at, { now_ms: due_at_ms });
    return then && then !== 'not_due' ? [{ by: 'time', at_ms: due_at_ms, then }] : [];
  }

  /** The nearest value of a knob that makes a due verdict not due, or the other way. */
  #byKnob(key: string, observed: number | null, isDue: boolean, at: number): Flip[] {
    const knob = this.knobs.find((one) => one.key === key);
    if (!knob) return [];
    const now = this.#value(knob);
    const end = isDue ? knob.max : knob.min;
    const then = (value: number) => this.#then(at, { set: { [key]: String(value) } });
    const flips = (value: number) => (then(value) === 'due') !== isDue;
    if (now === undefined || now === end || !flips(end)) return [];
    // The threshold itself, in the written unit, is nearly always the answer.
    const guess = observed === null ? now : Math.floor(observed / (knob.unit === 'seconds' ? 1000 : 1));
    const value = nearest(flips, now, end, guess);
    const outcome = then(value);
    return outcome ? [{ by: 'knob', key, limit: limit(knob, value, isDue), text: written(knob, value), then: outcome }] : [];
  }

  /** A knob's value in its written unit, as the planner reads it. */
  #value(knob: door.Knob): number | undefined {
    const line = this.#toml.match(new RegExp(`^#? ?${knob.key} = "?([^"\n]*)"?$`, 'm'));
    return line?.[1] === undefined ? undefined : number(line[1], knob);
  }

  #switched(key: string, at: number): Flip[] {
    const knob = this.knobs.find((one) => one.key === key);
    if (!knob) {
      if (!this.parsed) return [];
      const facts = structuredClone(this.parsed);
      if (facts.overrides) delete facts.overrides[key];
      if (facts.cleanup) facts.cleanup = { ...facts.cleanup, opted_out: false };
      const then = this.#then(at, { facts });
      return then && then !== 'disabled' ? [{ by: 'release', what: `Without ${key} = false in the table’s config`, then }] : [];
    }
    const text = knob.text === '0' ? ON : knob.text;
    const then = this.#then(at, { set: { [key]: text } });
    return then && then !== 'disabled' ? [{ by: 'knob', key, limit: `at ${text}, say`, text, then }] : [];
  }

  #released(verdict: door.Verdict & { outcome: 'held' }, at: number): Flip[] {
    const { hold } = verdict;
    if (hold.by === 'failing') {
      const then = this.#then(at, { now_ms: hold.until_ms });
      return then && then !== 'held' ? [{ by: 'time', at_ms: hold.until_ms, then }] : [];
    }
    const facts = this.parsed && release(this.parsed, hold, verdict.shard);
    const then = facts && this.#then(at, { facts });
    return then ? [{ by: 'release', what: `Without the wait for ${holder(hold, this.asked.now_ms)}`, then }] : [];
  }

  /** How much more of something makes it due. */
  #grown(verdict: door.Verdict & { outcome: 'not_due' }, at: number): Flip[] {
    const { parsed } = this;
    if (!parsed) return [];
    return verdict.reasons.flatMap((reason) => {
      const growth = growthOf(reason, verdict.shard);
      if (!growth) return [];
      const then = (more: number) => this.#then(at, { facts: grow(parsed, growth, more, this.asked.now_ms) });
      const flips = (more: number) => (then(more) ?? 'not_due') !== 'not_due';
      const few = growth.of === 'sstables' || growth.of === 'fragments' || growth.of === 'folds';
      const guess = reason.observed === null || reason.threshold === null ? 1 : reason.threshold - reason.observed;
      const more = least(flips, Math.max(1, guess), few ? THINGS_MAX : MORE_MAX);
      const outcome = more === undefined ? undefined : then(more);
      if (more === undefined || !outcome) return [];
      return [{ by: 'growth', what: grownBy(growth, more), growth, more, then: outcome } as const];
    });
  }
}

function growthOf({ measure, subject }: door.Reason, shard: string | undefined): Growth | undefined {
  switch (measure) {
    case 'ss_tables':
      return { of: 'sstables', shard };
    case 'indexes_behind':
      return { of: 'folds' };
    case 'folded_listed':
      return { of: 'folds', shard };
    case 'unindexed_rows':
      return subject ? { of: 'rows', index: subject } : undefined;
    case 'segments':
      return subject ? { of: 'segments', index: subject } : undefined;
    case 'small_fragments':
      return { of: 'fragments' };
    case 'initial_version':
    case 'versions_since':
      return { of: 'versions' };
    case 'rewrites':
      return { of: 'rewrites' };
    default:
      return undefined;
  }
}

function grownBy(growth: Growth, more: number): string {
  switch (growth.of) {
    case 'sstables':
      return `After ${many(more, 'more SSTable')}`;
    case 'folds':
      return growth.shard ? 'After the next fold of the shard' : 'After the next fold';
    case 'rows':
      return `After ${many(more, 'more row')} that ${growth.index} lacks`;
    case 'segments':
      return `After ${many(more, 'more segment')} of ${growth.index}`;
    case 'fragments':
      return `After ${many(more, 'more small fragment')}`;
    case 'versions':
      return `After ${many(more, 'more version')}`;
    case 'rewrites':
      return `After ${many(more, 'more recorded rewrite')}`;
  }
}

/** The value nearest to `from` on the way to `to` that flips. It flips at `to`, and from some point on. */
export function nearest(flips: (value: number) => boolean, from: number, to: number, guess: number): number {
  const within = (value: number) => (value - from) * (value - to) < 0;
  let [not, yes] = [from, to];
  for (const value of [guess, guess - 1, guess + 1].filter(within)) {
    if (Math.abs(value - from) <= Math.abs(not - from) || Math.abs(value - from) >= Math.abs(yes - from)) continue;
    if (flips(value)) yes = value;
    else not = value;
  }
  while (Math.abs(yes - not) > 1) {
    const middle = Math.floor(not / 2 + yes / 2);
    const value = middle === not || middle === yes ? Math.min(not, yes) + 1 : middle;
    if (flips(value)) yes = value;
    else not = value;
  }
  return yes;
}

/** The least number from 1 to `most` that flips; nothing when none does. */
export function least(flips: (value: number) => boolean, guess: number, most: number): number | undefined {
  let [not, yes] = [0, guess];
  while (yes <= most && !flips(yes)) [not, yes] = [yes, yes * 2];
  if (yes > most) return undefined;
  return nearest(flips, not, yes, guess - 1);
}

const SUFFIXES: Record<door.Knob['unit'], [string, number][]> = {
  count: [],
  bytes: [['TiB', 2 ** 40], ['GiB', 2 ** 30], ['MiB', 2 ** 20], ['KiB', 2 ** 10]],
  seconds: [['d', 86_400], ['h', 3_600], ['m', 60]],
};

/** A value of a knob as a person writes it: with the largest suffix that divides it. */
export function written(knob: door.Knob, value: number): string {
  const suffix = SUFFIXES[knob.unit].find(([, size]) => value > 0 && value % size === 0);
  if (suffix) return `${value / suffix[1]}${suffix[0]}`;
  return knob.unit === 'seconds' && value > 0 ? `${value}s` : String(value);
}

/** A value that the planner wrote, back in the written unit. */
function number(text: string, knob: door.Knob): number | undefined {
  const found = text.match(/^(\d+)([A-Za-z]*)$/);
  if (!found) return undefined;
  const sizes: Record<string, number> = { '': 1, s: 1, B: 1, ...Object.fromEntries(SUFFIXES[knob.unit]) };
  const size = sizes[found[2] ?? ''];
  return size === undefined ? undefined : Number(found[1]) * size;
}

/** From which value on, in the fewest digits that say it exactly. */
function limit(knob: door.Knob, value: number, up: boolean): string {
  const [at, before] = [written(knob, value), written(knob, up ? value - 1 : value + 1)];
  const shown = (text: string) => (/^\d{5,}$/.test(text) ? (knob.unit === 'bytes' ? bytes(Number(text)) : count(Number(text))) : text);
  if (before.length < at.length) return up ? `above ${shown(before)}` : `below ${shown(before)}`;
  return up ? `at ${shown(at)} or more` : `at ${shown(at)} or less`;
}
