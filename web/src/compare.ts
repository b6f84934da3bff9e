// Two policies beside each other: their knobs, their verdicts, what a simulation counted.

import type { Changes, Knob, Plan, Totals } from './door';
import { badge } from './cards';
import { make } from './dom';
import { bytes, count, duration, many } from './units';
import { DECISIONS, short } from './words';

type Cell = string | HTMLElement;

export function table(head: string[], rows: { cells: Cell[]; differs?: boolean }[], caption: string): HTMLTableElement {
  const titles = head.map((title) => {
    const cell = make('th', '', title);
    cell.scope = 'col';
    return cell;
  });
  const body = rows.map(({ cells: [name, ...rest], differs }) => {
    const title = make('th', '', name ?? '');
    title.scope = 'row';
    return make('tr', differs ? 'differs' : '', title, ...rest.map((cell) => make('td', typeof cell === 'string' ? 'number' : '', cell)));
  });
  return make('table', '', make('caption', 'quiet', caption), make('thead', '', make('tr', '', ...titles)), make('tbody', '', ...body));
}

/** The knobs in which two policies differ. */
export function knobTable(a: Changes, b: Changes, knobs: Knob[]): HTMLElement {
  const differ = knobs.filter(({ key }) => (a[key] ?? '') !== (b[key] ?? ''));
  if (differ.length === 0) return make('p', 'hint', 'A and B are the same so far. Change a knob of one of them.');
  const rows = differ.map(({ key, text }) => ({ cells: [make('code', '', key), a[key] ?? text, b[key] ?? text], differs: true }));
  return table(['Knob', 'A', 'B'], rows, 'Knobs in which the policies differ');
}

/** The verdicts in which two plans differ. */
export function verdictTable(a: Plan, b: Plan): HTMLElement {
  const rows = a.verdicts.flatMap((verdict) => {
    const other = b.verdicts.find((one) => one.decision === verdict.decision && one.shard === verdict.shard);
    if (!other || other.outcome === verdict.outcome) return [];
    const name = make('span', '', DECISIONS[verdict.decision]?.name ?? verdict.decision, verdict.shard ? make('span', 'remark', ` ${short(verdict.shard)}`) : '');
    return [{ cells: [name, badge(verdict.outcome), badge(other.outcome)], differs: true }];
  });
  if (rows.length === 0) return make('p', 'hint', `All ${count(a.verdicts.length)} verdicts are the same for this table at this moment.`);
  return table(['Verdict', 'A', 'B'], rows, `${many(rows.length, 'verdict')} of ${count(a.verdicts.length)} differ`);
}

interface Total {
  name: string;
  of: (totals: Totals) => number;
  show: (value: number) => string;
  /** More is worse (or better); nothing where it is neither. */
  more?: 'worse' | 'better';
}

const times = (permille: number) => `${(permille / 1000).toFixed(2)} ×`;
const WRITTEN: Total[] = [
  { name: 'Rows written', of: (t) => t.rows, show: count },
  { name: 'Bytes written', of: (t) => t.bytes, show: bytes },
  { name: 'Flushes', of: (t) => t.flushes, show: count },
  { name: 'SSTables folded', of: (t) => t.folded, show: count },
  { name: 'Commits by writers', of: (t) => t.commits, show: count },
  { name: 'Versions kept', of: (t) => t.versions, show: count },
  { name: 'Write amplification', of: (t) => t.write_amplification_permille, show: times, more: 'worse' },
  { name: 'Space amplification', of: (t) => t.space_amplification_permille, show: times, more: 'worse' },
];
const WAITED: Total[] = [
  { name: 'Most SSTables not folded', of: (t) => t.unfolded_max, show: count, more: 'worse' },
  { name: 'Base-only reader behind, median', of: (t) => t.staleness.over_time.p50, show: duration, more: 'worse' },
  { name: 'Base-only reader behind, 99 %', of: (t) => t.staleness.over_time.p99, show: duration, more: 'worse' },
  { name: 'Base-only reader behind, at most', of: (t) => t.staleness.over_time.max, show: duration, more: 'worse' },
  { name: 'Jobs waited for a worker, 99 %', of: (t) => t.queue_wait.p99, show: duration, more: 'worse' },
  { name: 'Writes held', of: (t) => t.stalled_ms, show: duration, more: 'worse' },
  { name: 'Failed attempts', of: (t) => t.failures, show: count, more: 'worse' },
];

/** Totals of one run, or of two with what B has more. */
export function totals(a: Totals, b: Totals | undefined): HTMLElement[] {
  const head = b ? ['', 'A', 'B', 'B − A'] : ['', ''];
  const part = (title: string, rows: Total[]) => table(head, rows.map((row) => counted(row, a, b)), title);
  return [part('Written and kept', WRITTEN), part('Readers, writers and queues', WAITED), part('Jobs done', jobs(a, b))];
}

function counted({ name, of, show, more }: Total, a: Totals, b: Totals | undefined): { cells: Cell[]; differs?: boolean } {
  const cells: Cell[] = [name, show(of(a))];
  if (!b) return { cells };
  const delta = of(b) - of(a);
  return { cells: [...cells, show(of(b)), change(delta, of(a), show, more)], differs: delta !== 0 };
}

function jobs(a: Totals, b: Totals | undefined): Total[] {
  const kinds = [...new Set([...Object.keys(a.jobs), ...Object.keys(b?.jobs ?? {})])].sort();
  return kinds.map((kind) => ({ name: kind, of: (t) => t.jobs[kind]?.done ?? 0, show: count }));
}

/** A difference with its sign, its share, and whether it is for the better. */
function change(delta: number, from: number, show: (value: number) => string, more: Total['more']): HTMLElement {
  if (delta === 0) return make('span', 'number', '=');
  const share = from > 0 ? ` (${delta > 0 ? '+' : '−'}${Math.round((Math.abs(delta) / from) * 100)} %)` : '';
  const word = more === undefined ? '' : (delta > 0) === (more === 'worse') ? ' worse' : ' better';
  return make('span', `number delta${word}`, `${delta > 0 ? '+' : '−'}${show(Math.abs(delta))}${share}`, word ? make('span', 'word', word) : '');
}
