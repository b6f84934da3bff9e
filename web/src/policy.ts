// Which knobs stand together in a form. A knob that is new to this list stands under "Other".

const GROUPS: [string, RegExp][] = [
  ['Fold', /^(wal_|compact_)/],
  ['Retire and collect', /^(retire_|collect_)/],
  ['Index', /^index_/],
  ['Compaction', /^compaction_/],
  ['Cleanup', /^cleanup_/],
  ['Remap', /^remap_/],
  ['Answers', /^answers_/],
  ['Agent', /^agent_/],
];

const WORKLOAD: [string, RegExp][] = [
  ['Writes', /^(rows_per_|row_bytes|update_|delete_|hot_|table_rows|lsm|shards)/],
  ['Bursts and nights', /^(burst_|quiet_)/],
  ['Memtable and log', /^(flush_|stop_)/],
  ['Workers', /^(worker_|index_row|commit_|failure_)/],
  ['Indexes and readers', /(_indexes$|^longest_)/],
];

/** Where a knob of the policy stands. */
export function groupOf(key: string): string {
  return named(GROUPS, key);
}

/** Where a knob of the workload stands. */
export function workloadGroupOf(key: string): string {
  return named(WORKLOAD, key);
}

function named(groups: [string, RegExp][], key: string): string {
  return groups.find(([, keys]) => keys.test(key))?.[0] ?? 'Other';
}

/** The lines of a settings file for what was changed. */
export function lines(set: Record<string, string>): string {
  const line = ([key, text]: [string, string]) => `${key} = ${/^\d+$/.test(text) ? text : JSON.stringify(text)}`;
  return Object.entries(set).map(line).join('\n');
}
