// What if more is written, or time goes by: the plan for a table that grew, beside the plan for now.

import * as door from './door';
import { make } from './dom';
import { badge } from './cards';
import type { Flip, Flips } from './flips';
import { grow } from './grow';
import type { Facts } from './grow';
import { isExact } from './json';
import { duration, many } from './units';
import { DECISIONS, short } from './words';

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
/** Where the slider of time stops. */
export const LATER = [0, 1, 2, 5, 10, 15, 30, 45].map((m) => m * MINUTE).concat(
  [1, 2, 3, 6, 9, 12, 18].map((h) => h * HOUR),
  [1, 2, 3, 5, 7, 10, 14, 21, 30].map((d) => d * DAY),
);
export const MORE_MAX = 24;
const ROWS_MAX = 40;

export interface Case {
  more: number;
  later_ms: number;
}

/** The plan for a later moment, after more SSTables on each shard; nothing where facts can't be changed. */
export function planOf(facts: door.Json, policy: door.Policy, now_ms: number, trigger: string, { more, later_ms }: Case): door.Plan | undefined {
  if (more === 0) return door.plan(facts, policy, now_ms + later_ms, trigger).plan;
  if (!isExact(facts.text)) return undefined;
  const grown = grow(JSON.parse(facts.text) as Facts, { of: 'sstables' }, more, now_ms + later_ms);
  return door.plan(new door.Json(JSON.stringify(grown)), policy, now_ms + later_ms, trigger).plan;
}

/** The case in words. */
export function caseOf({ more, later_ms }: Case): string {
  const parts = [more > 0 ? `after ${many(more, 'more SSTable')} on each shard` : '', later_ms > 0 ? `${duration(later_ms)} later` : ''];
  return parts.filter(Boolean).join(', ') || 'now';
}

/** Now and then, a row each verdict. */
export function whatIfTable(now: door.Plan, then: door.Plan, flips: Flips | undefined): HTMLElement {
  const head = ['Decision', 'Now', 'Then'].map((title) => {
    const cell = make('th', '', title);
    cell.scope = 'col';
    return cell;
  });
  const rows = now.verdicts.slice(0, ROWS_MAX).map((verdict, at) => {
    const later = then.verdicts[at];
    const name = make('th', '', DECISIONS[verdict.decision]?.name ?? verdict.decision, verdict.shard ? make('span', 'remark', ` ${short(verdict.shard)}`) : '');
    name.scope = 'row';
    const when = starts(verdict, flips?.[at], now.at_ms);
    if (when) name.append(make('span', 'starts', `starts ${when}`));
    const row = make('tr', '', name, make('td', '', badge(verdict.outcome)), make('td', '', later ? badge(later.outcome) : ''));
    row.classList.toggle('differs', later !== undefined && later.outcome !== verdict.outcome);
    return row;
  });
  return make('table', '', make('thead', '', make('tr', '', ...head)), make('tbody', '', ...rows));
}

/** `after 2 more SSTables, or in 41 min`. */
export function starts(verdict: door.Verdict, flips: Flip[] | undefined, now_ms: number): string {
  if (verdict.outcome !== 'not_due' || !flips) return '';
  const ways = flips.flatMap((flip) => {
    if (flip.then !== 'due') return [];
    if (flip.by === 'growth') return [flip.what.replace(/^A/, 'a')];
    if (flip.by === 'time') return [`in ${duration(flip.at_ms - now_ms)}`];
    return [];
  });
  return ways.sort((a, b) => Number(a.startsWith('in')) - Number(b.startsWith('in'))).join(', or ');
}
