// Which knobs stand together in the policy's form.

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

export function groupOf(key: string): string {
  return GROUPS.find(([, keys]) => keys.test(key))?.[0] ?? 'Other';
}

/** The lines of a settings file for what was changed. */
export function lines(set: Record<string, string>): string {
  const line = ([key, text]: [string, string]) => `${key} = ${/^\d+$/.test(text) ? text : JSON.stringify(text)}`;
  return Object.entries(set).map(line).join('\n');
}
