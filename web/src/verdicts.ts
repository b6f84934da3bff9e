// A plan as a table: one row a verdict, with its reasons and both their numbers.

import type { Hold, Job, Plan, Reason, Verdict } from './door';
import { make } from './dom';
import { bytes, count, duration, moment } from './units';

const DECISIONS: Record<string, string> = {
  wal_catchup: 'Index catch-up',
  index: 'Index',
  compaction: 'Compaction',
  cleanup: 'Cleanup',
  remap: 'Remap',
  fold: 'Fold',
  retire: 'Retire',
  collect: 'Collect',
};

const OUTCOMES = { due: 'Due', not_due: 'Not due', held: 'Held', disabled: 'Off' };

interface Measure {
  name: string;
  show: (value: number) => string;
  /** A bar helps to see how far it is. */
  bar?: boolean;
  /** The subject is what the sentence is about; else it is a remark. */
  named?: boolean;
}

const MEASURES: Record<string, Measure> = {
  ss_tables: { name: 'SSTables', show: count, bar: true },
  ss_table_bytes: { name: 'Bytes', show: bytes, bar: true },
  ss_table_age_ms: { name: 'Age of the oldest', show: duration, bar: true },
  forced: { name: 'Forced', show: count },
  folded_listed: { name: 'Folded but listed', show: count },
  fold_age_ms: { name: 'Time since the fold', show: duration, bar: true },
  caught_up_generation: { name: 'covers generation', show: count, named: true },
  garbage_age_ms: { name: 'Unlisted for', show: duration, bar: true },
  retained_generation: { name: 'needs all above generation', show: count, named: true },
  files: { name: 'Files', show: count },
  indexes_behind: { name: 'Indexes behind', show: count },
  withdrawn: { name: 'has entries withdrawn', show: count, named: true },
  unindexed_rows: { name: 'unindexed rows', show: count, bar: true, named: true },
  unindexed_age_ms: { name: 'has rows unindexed for', show: duration, bar: true, named: true },
  segments: { name: 'segments', show: count, bar: true, named: true },
  small_fragments: { name: 'Small fragments', show: count, bar: true },
  deleted_permille: { name: 'Deleted rows of the worst fragment', show: percent, bar: true },
  target_rows: { name: 'Row target', show: count },
  vetoed_fragments: { name: 'Would be candidates again at once', show: count },
  excluded_fragments: { name: 'Excluded fragments', show: count },
  initial_version: { name: 'Version', show: count, bar: true },
  versions_since: { name: 'Versions since the last cleanup', show: count, bar: true },
  cleanup_age_ms: { name: 'Time since the last cleanup', show: duration, bar: true },
  recorded_version: { name: 'Version of the last cleanup', show: count },
  failure_age_ms: { name: 'Time since the last failure', show: duration, bar: true },
  rewrites: { name: 'Rewrites to remap', show: count, bar: true },
  rewrite_age_ms: { name: 'Age of the oldest rewrite', show: duration, bar: true },
};

/** `go` is called with the time at which a verdict would become due, when someone asks for it. */
export function verdictTable(plan: Plan, go: (ms: number) => void): HTMLTableElement {
  const head = ['Decision', 'Verdict', 'Why'].map((title) => {
    const cell = make('th', '', title);
    cell.scope = 'col';
    return cell;
  });
  const table = make('table', '', make('thead', '', make('tr', '', ...head)));
  const groups = new Map<string | undefined, Verdict[]>();
  for (const verdict of plan.verdicts) {
    groups.set(verdict.shard, [...(groups.get(verdict.shard) ?? []), verdict]);
  }
  for (const [shard, verdicts] of groups) {
    const title = make('th', '', shard === undefined ? `Table ${plan.table}, version ${plan.version}` : `Shard ${shard}`);
    title.scope = 'rowgroup';
    title.colSpan = 3;
    table.append(make('tbody', '', make('tr', 'group', title), ...verdicts.map((v) => row(v, plan.at_ms, go))));
  }
  if (plan.complaints?.length) {
    const title = make('th', '', 'Keys of the table’s config that are not followed');
    title.scope = 'rowgroup';
    title.colSpan = 3;
    table.append(make('tbody', '', make('tr', 'group', title), ...plan.complaints.map(complaint)));
  }
  describeToAssistants(table);
  return table;
}

/** `2 due, 1 held, 4 not due`, then how far a reader of the base may lag (R2.14). */
export function summary(plan: Plan): string {
  const outcomes = Object.entries(OUTCOMES).map(([outcome, name]) => {
    const number = plan.verdicts.filter((verdict) => verdict.outcome === outcome).length;
    return number > 0 ? `${number} ${name.toLowerCase()}` : '';
  });
  return `${outcomes.filter(Boolean).join(', ')}. ${staleness(plan)}`;
}

function staleness({ staleness_bound_ms: bound, verdicts }: Plan): string {
  if (bound === undefined) return 'A reader of the base alone may fall behind without bound.';
  if (bound === 0) return 'The base holds everything.';
  if (verdicts.every(hasNothingToFold)) return 'The base holds every flushed row.';
  return `A reader of the base alone is at most ${duration(bound)} behind, plus the job.`;
}

function hasNothingToFold(verdict: Verdict): boolean {
  if (verdict.decision !== 'fold') return true;
  return verdict.outcome === 'not_due' && verdict.reasons.some((r) => r.measure === 'ss_tables' && r.observed === 0);
}

function row(verdict: Verdict, at_ms: number, go: (ms: number) => void): HTMLTableRowElement {
  const name = make('th', '', DECISIONS[verdict.decision] ?? verdict.decision);
  name.scope = 'row';
  const badge = make('span', `badge ${verdict.outcome}`, OUTCOMES[verdict.outcome]);
  const why = make('td', 'why');
  if (verdict.outcome === 'disabled') {
    why.append(make('p', 'note', `Switched off by ${verdict.knob} = ${verdict.knob.includes('.') ? 'false' : '0'}.`));
  } else {
    if (verdict.outcome === 'due') why.append(...verdict.jobs.map((job) => make('p', 'note job', work(job))));
    if (verdict.outcome === 'held') why.append(make('p', 'note', `Waits for ${holder(verdict.hold, at_ms)}.`));
    const reasons = verdict.reasons.map((r, at) => reason(r, verdict.outcome === 'due' && at === 0));
    why.append(make('ul', '', ...reasons));
    if (verdict.outcome === 'not_due' && verdict.due_at_ms !== undefined) why.append(when(verdict.due_at_ms, at_ms, go));
  }
  return make('tr', '', name, make('td', 'verdict', badge), why);
}

function complaint({ key, why }: { key: string; why: string }): HTMLTableRowElement {
  const name = make('th', '', key);
  name.scope = 'row';
  return make('tr', '', name, make('td', 'verdict', make('span', 'badge held', 'Not followed')), make('td', 'why', why));
}

function when(due_at_ms: number, at_ms: number, go: (ms: number) => void): HTMLElement {
  const button = make('button', '', 'Go there');
  button.type = 'button';
  button.setAttribute('aria-label', `Set now to ${moment(due_at_ms)}`);
  button.addEventListener('click', () => go(due_at_ms));
  return make('p', 'when', `Due by time alone in ${duration(due_at_ms - at_ms)}, ${moment(due_at_ms)} `, button);
}

function reason({ measure, observed, threshold, subject }: Reason, decides: boolean): HTMLLIElement {
  const { name, show, bar, named }: Measure = MEASURES[measure] ?? { name: measure, show: count };
  if (measure === 'unindexed_rows' && !subject && observed === 0) return make('li', 'reason', 'no index');
  const before = named && subject ? `${subject} ` : '';
  const after = !named && subject ? ` (${subject})` : '';
  const numbers = make('span', 'number', compared(observed, threshold, show));
  const item = make('li', decides ? 'reason decides' : 'reason', `${before}${name} `, numbers, after);
  if (bar && observed !== null && threshold) item.append(gauge(observed / threshold));
  return item;
}

function compared(observed: number | null, threshold: number | null, show: (value: number) => string): string {
  if (observed === null) return threshold === null ? 'unmeasured' : `unmeasured, ${show(threshold)} needed`;
  if (threshold === null) return show(observed);
  return `${show(observed)} ${observed >= threshold ? '≥' : '<'} ${show(threshold)}`;
}

/** Thousandths. */
function percent(permille: number): string {
  return `${(permille / 10).toFixed(1)} %`;
}

/** How much of the threshold is reached; the numbers beside it say the same in words. */
function gauge(share: number): HTMLElement {
  const svg = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
  const rect = document.createElementNS('http://www.w3.org/2000/svg', 'rect');
  rect.setAttribute('width', `${Math.min(100, share * 100)}%`);
  rect.setAttribute('height', '100%');
  svg.append(rect);
  const bar = make('span', 'bar');
  bar.append(svg);
  bar.setAttribute('aria-hidden', 'true');
  return bar;
}

function work(job: Job): string {
  switch (job.job) {
    case 'fold': {
      const size = job.bytes === undefined ? '' : `, ${bytes(job.bytes)}`;
      return `memwal_compaction ${generations(job.sstables)}${size}`;
    }
    case 'retire':
      return `memwal_retire ${generations(job.sstables)}`;
    case 'catch_up':
      return `memwal_catchup_${job.kind} ${job.indexes.join(' ')}`;
    case 'collect':
      return `memwal_collect ${count(job.files.length)} ${job.files.length === 1 ? 'file' : 'files'}, ${bytes(job.bytes)}`;
    case 'index':
      return `${job.op} ${job.indexes.join(' ')}`;
    case 'compact': {
      const many = job.tasks.reduce((sum, task) => sum + task.length, 0);
      const size = job.predicted.bytes === undefined ? '' : `, ${bytes(job.predicted.bytes)}`;
      return `compact ${count(many)} into ${count(job.predicted.fragments)}${size}${job.deferred ? ', remap deferred' : ''}`;
    }
    case 'cleanup':
      return `cleanup of versions older than ${duration(job.min_age_ms)}`;
    case 'remap':
      return job.indexes.length > 0 ? `remap ${job.indexes.join(' ')}` : 'remap, only trimming';
    default:
      return JSON.stringify(job);
  }
}

/** The ends say enough: a pass takes a prefix, and the drawing shows each generation. */
function generations(sstables: { generation: number }[]): string {
  const [first, last] = [sstables[0]?.generation, sstables.at(-1)?.generation];
  return first === last ? `${first}` : `${first}..${last}`;
}

function holder(hold: Hold, at_ms: number): string {
  switch (hold.by) {
    case 'pass':
      return `a pass of ${hold.holder}, running for ${duration(at_ms - hold.since_ms)}`;
    case 'index':
      return `index ${hold.index} to catch up`;
    case 'retained':
      return `${hold.version} to go, which still needs the files`;
    case 'sealed':
      return 'the shard to be dropped';
    case 'detached':
      return 'a MemWAL index, which the table lacks';
    case 'paused':
      return 'the table’s pause to end';
    case 'mismatch':
      return `somebody to look at the answers that ${hold.kind} changed ${duration(at_ms - hold.at_ms)} ago`;
    case 'remap':
      return `the remap of ${count(hold.rewrites)} earlier rewrites`;
    case 'clone':
      return `the shallow clone ${hold.table} to go, which reads its files`;
    case 'no_primary_key':
      return 'a primary key, which the table lacks';
    case 'running':
      return `${hold.kind} of ${hold.holder}, running for ${duration(at_ms - hold.since_ms)}`;
    case 'compaction':
      return hold.holder === undefined ? 'the inline compaction below' : `the inline compaction of ${hold.holder}`;
    case 'catch_up':
      return `the catch-up of ${hold.index}`;
    case 'failing':
      return `${count(hold.times)} failures of ${hold.kind}, for ${duration(hold.until_ms - at_ms)}`;
    default:
      return JSON.stringify(hold);
  }
}

/** On a phone the rows are laid out as cards, and such a layout would hide the table's nature. */
function describeToAssistants(table: HTMLTableElement): void {
  const roles = { table: 'table', thead: 'rowgroup', tbody: 'rowgroup', tr: 'row', td: 'cell' };
  for (const element of [table, ...table.querySelectorAll('*')]) {
    const role = roles[element.localName as keyof typeof roles];
    if (role) element.setAttribute('role', role);
    if (element instanceof HTMLTableCellElement && element.localName === 'th') {
      element.setAttribute('role', element.scope === 'col' ? 'columnheader' : 'rowheader');
    }
  }
}
