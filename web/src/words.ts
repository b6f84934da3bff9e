// What decisions, measures, jobs and holds are called. Every page that shows a plan takes its words from here.

import type { Hold, Job, Outcome, Plan, Reason, Verdict } from './door';
import { bytes, count, duration, many, percent } from './units';

interface Named {
  name: string;
  /** One line for somebody who never read the manual. */
  help: string;
}

export const DECISIONS: Record<string, Named> = {
  wal_catchup: { name: 'Index catch-up', help: 'Extends each index over folded rows. Nothing holds it back.' },
  index: { name: 'Index', help: 'Brings indexes up to date: appends rows, merges segments, rebuilds.' },
  compaction: { name: 'Compaction', help: 'Merges small fragments and drops deleted rows.' },
  cleanup: { name: 'Cleanup', help: 'Removes old versions and the files only they need.' },
  remap: { name: 'Remap', help: 'Corrects index entries that deferred compactions left.' },
  fold: { name: 'Fold', help: 'Moves the oldest SSTables of the shard into the table.' },
  retire: { name: 'Retire', help: 'Takes folded SSTables off the shard’s list.' },
  collect: { name: 'Collect', help: 'Deletes files that nothing needs any more.' },
};

export const OUTCOMES: Record<Outcome, string> = { due: 'Due', not_due: 'Not due', held: 'Held', disabled: 'Off' };

interface Measure {
  name: string;
  show: (value: number) => string;
  /** A bar helps to see how far it is. */
  bar?: boolean;
  /** The subject is what the sentence is about; else it is a remark. */
  named?: boolean;
  /** The knob that is the threshold. */
  knob?: string;
}

export const MEASURES: Record<string, Measure> = {
  ss_tables: { name: 'SSTables', show: count, bar: true, knob: 'wal_compact_trigger_count' },
  ss_table_bytes: { name: 'Bytes', show: bytes, bar: true, knob: 'wal_compact_trigger_bytes' },
  ss_table_age_ms: { name: 'Age of the oldest', show: duration, bar: true, knob: 'wal_max_data_age_secs' },
  forced: { name: 'Forced', show: count },
  folded_listed: { name: 'Folded but listed', show: count },
  fold_age_ms: { name: 'Time since the fold', show: duration, bar: true, knob: 'retire_delay_secs' },
  caught_up_generation: { name: 'covers generation', show: count, named: true },
  garbage_age_ms: { name: 'Unlisted for', show: duration, bar: true, knob: 'collect_grace_secs' },
  retained_generation: { name: 'needs all above generation', show: count, named: true },
  files: { name: 'Files', show: count },
  indexes_behind: { name: 'Indexes behind', show: count },
  withdrawn: { name: 'has entries withdrawn', show: count, named: true },
  unindexed_rows: { name: 'unindexed rows', show: count, bar: true, named: true, knob: 'index_unindexed_rows_min' },
  unindexed_age_ms: { name: 'has rows unindexed for', show: duration, bar: true, named: true, knob: 'index_unindexed_age_secs' },
  segments: { name: 'segments', show: count, bar: true, named: true, knob: 'index_segments_max' },
  small_fragments: { name: 'Small fragments', show: count, bar: true, knob: 'compaction_small_fragments_min' },
  deleted_permille: { name: 'Deleted rows of the worst fragment', show: percent, bar: true, knob: 'compaction_deleted_permille' },
  target_rows: { name: 'Row target', show: count },
  vetoed_fragments: { name: 'Would be candidates again at once', show: count },
  excluded_fragments: { name: 'Excluded fragments', show: count },
  initial_version: { name: 'Version', show: count, bar: true, knob: 'cleanup_initial_version' },
  versions_since: { name: 'Versions since the last cleanup', show: count, bar: true, knob: 'cleanup_version_interval' },
  cleanup_age_ms: { name: 'Time since the last cleanup', show: duration, bar: true, knob: 'cleanup_interval_secs' },
  recorded_version: { name: 'Version of the last cleanup', show: count },
  failure_age_ms: { name: 'Time since the last failure', show: duration, bar: true, knob: 'cleanup_retry_delay_secs' },
  rewrites: { name: 'Rewrites to remap', show: count, bar: true, knob: 'remap_rewrites_min' },
  rewrite_age_ms: { name: 'Age of the oldest rewrite', show: duration, bar: true, knob: 'remap_age_secs' },
};

export function measure(reason: Reason): Measure {
  return MEASURES[reason.measure] ?? { name: reason.measure, show: count };
}

/** `SSTables 4 ≥ 4`, in its three parts. */
export function compared(reason: Reason): { before: string; numbers: string; after: string } {
  const { name, show, named } = measure(reason);
  const { observed, threshold, subject } = reason;
  if (reason.measure === 'unindexed_rows' && !subject && observed === 0) return { before: 'No index', numbers: '', after: '' };
  const before = named && subject ? `${subject} ${name}` : capital(name);
  const after = !named && subject ? `(${subject})` : '';
  return { before, numbers: numbers(observed, threshold, show), after };
}

function numbers(observed: number | null, threshold: number | null, show: (value: number) => string): string {
  if (observed === null) return threshold === null ? 'unmeasured' : `unmeasured, ${show(threshold)} needed`;
  if (threshold === null) return show(observed);
  return `${show(observed)} ${observed >= threshold ? '≥' : '<'} ${show(threshold)}`;
}

/** How far an observed value is from its threshold: `2 short`, `3 over`, `at the threshold`. */
export function margin(reason: Reason): string {
  const { observed, threshold } = reason;
  if (observed === null || threshold === null) return '';
  const { show } = measure(reason);
  if (observed === threshold) return 'exactly there';
  return observed > threshold ? `${show(observed - threshold)} over` : `${show(threshold - observed)} short`;
}

export function capital(text: string): string {
  return text.slice(0, 1).toUpperCase() + text.slice(1);
}

/** The first eight digits tell shards apart. */
export function short(shard: string): string {
  return shard.length > 12 ? `${shard.slice(0, 8)}…` : shard;
}

/** A job by its name in the Job Registry, and what it takes. */
export function work(job: Job): string {
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
      return `memwal_collect ${many(job.files.length, 'file')}, ${bytes(job.bytes)}`;
    case 'index':
      return `${job.op} ${job.indexes.join(' ')}`;
    case 'compact': {
      const taken = job.tasks.reduce((sum, task) => sum + task.length, 0);
      const size = job.predicted.bytes === undefined ? '' : `, ${bytes(job.predicted.bytes)}`;
      return `compact ${count(taken)} into ${count(job.predicted.fragments)}${size}${job.deferred ? ', remap deferred' : ''}`;
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

/** A job in a sentence about the table. */
export function told(job: Job): string {
  switch (job.job) {
    case 'fold':
      return `fold ${many(job.sstables.length, 'SSTable')} of shard ${short(job.shard)}${job.bytes === undefined ? '' : ` (${bytes(job.bytes)})`}`;
    case 'retire':
      return `take ${many(job.sstables.length, 'SSTable')} off the list of shard ${short(job.shard)}`;
    case 'catch_up':
      return `extend ${job.indexes.join(', ')} over folded rows`;
    case 'collect':
      return `delete ${many(job.files.length, 'file')} of shard ${short(job.shard)} (${bytes(job.bytes)})`;
    case 'index':
      return `${{ append: 'append to', merge: 'merge', reindex: 'rebuild' }[job.op]} ${job.indexes.join(', ')}`;
    case 'compact':
      return `merge ${many(job.tasks.reduce((sum, task) => sum + task.length, 0), 'fragment')} into ${count(job.predicted.fragments)}`;
    case 'cleanup':
      return `remove versions older than ${duration(job.min_age_ms)}`;
    case 'remap':
      return job.indexes.length > 0 ? `remap ${job.indexes.join(', ')}` : 'trim the list of rewrites';
    default:
      return JSON.stringify(job);
  }
}

/** What a held verdict waits for. */
export function holder(hold: Hold, at_ms: number): string {
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
      return `the remap of ${many(hold.rewrites, 'earlier rewrite')}`;
    case 'clone':
      return `the shallow clone ${hold.table} to go, which reads its files`;
    case 'no_primary_key':
      return 'a primary key, which the table lacks';
    case 'running':
      return `${hold.kind} of ${hold.holder}, running for ${duration(at_ms - hold.since_ms)}`;
    case 'compaction':
      return hold.holder === undefined ? 'the inline compaction beside it' : `the inline compaction of ${hold.holder}`;
    case 'catch_up':
      return `the catch-up of ${hold.index}`;
    case 'failing':
      return `${many(hold.times, 'failure')} of ${hold.kind}, for ${duration(hold.until_ms - at_ms)}`;
    default:
      return JSON.stringify(hold);
  }
}

/** `knob = 0`, or the key of the table's config that switches a decision off. */
export function switchedOff(knob: string): string {
  return `${knob} = ${knob.includes('.') ? 'false' : '0'}`;
}

/** `2 due, 1 held, 4 not due`. */
export function tally(plan: Plan): string {
  const outcomes = Object.entries(OUTCOMES).map(([outcome, name]) => {
    const number = plan.verdicts.filter((verdict) => verdict.outcome === outcome).length;
    return number > 0 ? `${number} ${name.toLowerCase()}` : '';
  });
  return outcomes.filter(Boolean).join(', ');
}

/** What would start, in a sentence. */
export function headline(plan: Plan): string {
  const jobs = plan.verdicts.flatMap((verdict) => (verdict.outcome === 'due' ? verdict.jobs : []));
  if (jobs.length === 0) return 'Nothing would start now.';
  const named = jobs.slice(0, 3).map(told);
  const rest = jobs.length > named.length ? `, and ${many(jobs.length - named.length, 'more', 'more')}` : '';
  return `${many(jobs.length, 'job')} would start now: ${named.join('; ')}${rest}.`;
}

/** How far a reader of the base may lag (R2.14). */
export function staleness({ staleness_bound_ms: bound, verdicts }: Plan): string {
  if (bound === undefined) return 'A reader of the base alone may fall behind without bound.';
  if (bound === 0) return 'The base holds everything.';
  if (verdicts.every(hasNothingToFold)) return 'The base holds every flushed row.';
  return `A reader of the base alone is at most ${duration(bound)} behind, plus the job.`;
}

function hasNothingToFold(verdict: Verdict): boolean {
  if (verdict.decision !== 'fold') return true;
  return verdict.outcome === 'not_due' && verdict.reasons.some((r) => r.measure === 'ss_tables' && r.observed === 0);
}
