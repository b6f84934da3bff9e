// A planner in JavaScript, and a place to start from: it folds by count, bytes and age, and takes
// folded SSTables off the list. Everything else it leaves alone. Requests and answers are JSON, as
// the schemas beside the interface say (`host/wit/1.0.0`).

const DESCRIPTION = {
  name: 'javascript-template',
  version: '1.0.0',
  abi: 'caretaker:planner@1.0.0',
  encodings: ['json'],
  ops: ['describe', 'plan_table'],
  // Settings of its own, as a JSON Schema; they arrive as `config`.
  config: {
    type: 'object',
    additionalProperties: false,
    properties: { fold: { type: 'boolean', default: true, description: 'whether anything is folded' } },
  },
};

const DEPTH_MAX = 100;

const OF_THE_TABLE = ['wal_catchup', 'index', 'compaction', 'cleanup', 'remap'];

export const door = {
  call(request) {
    try {
      return bytes({ ok: answer(JSON.parse(text(flat(request)))) });
    } catch (e) {
      return bytes({ error: { kind: e instanceof SyntaxError ? 'malformed' : 'invalid', message: String(e.message) } });
    }
  },
};

function answer(request) {
  switch (request.op) {
    case 'describe':
      return DESCRIPTION;
    case 'plan_table':
      return plan(request);
    default:
      throw new Error(`unknown operation \`${request.op}\``);
  }
}

function plan({ facts, policy, now_ms, config = {} }) {
  number('now_ms', now_ms);
  number('version', facts.version);
  const quiet = OF_THE_TABLE.map((decision) => ({ decision, ...nothing() }));
  // Lists come in any order; a plan has one.
  const shards = [...(facts.shards ?? [])].sort((a, b) => (a.shard < b.shard ? -1 : 1));
  const verdicts = shards.flatMap((shard) => [
    { decision: 'fold', shard: shard.shard, ...fold(facts, shard, policy, now_ms, config) },
    { decision: 'retire', shard: shard.shard, ...retire(facts, shard, policy, now_ms) },
    { decision: 'collect', shard: shard.shard, ...nothing() },
  ]);
  return { table: facts.table, version: facts.version, at_ms: now_ms, verdicts: [...quiet, ...verdicts] };
}

function fold(facts, shard, policy, now_ms, { fold = true }) {
  const listed = sstables(shard).filter((s) => s.generation > shard.compacted_generation);
  if (!fold || listed.length === 0 || alone(facts, shard) || facts.primary_key.length === 0) return nothing();
  const known = listed.every((s) => s.bytes !== undefined);
  const sum = known ? listed.reduce((all, s) => all + s.bytes, 0) : undefined;
  const age = listed[0].flushed_at_ms === undefined ? undefined : Math.max(0, now_ms - listed[0].flushed_at_ms);
  const reasons = [
    reason('ss_tables', listed.length, policy.trigger_count),
    reason('ss_table_bytes', sum, policy.trigger_bytes),
    reason('ss_table_age_ms', age, policy.age_ms_max),
  ];
  if (!reasons.some(crosses)) return nothing(reasons);
  // What decides is said first.
  reasons.sort((a, b) => crosses(b) - crosses(a));
  // The oldest ones, as many as a pass may take; the first whatever its size.
  let taken = 1;
  let size = listed[0].bytes ?? Infinity;
  for (; taken < listed.length && taken < policy.prefix_max; taken++) {
    size += listed[taken].bytes ?? Infinity;
    if (size > policy.pass_bytes) break;
  }
  return due({ job: 'fold', shard: shard.shard, sstables: listed.slice(0, taken).map(identity) }, reasons);
}

function retire(facts, shard, policy, now_ms) {
  const covered = Math.min(...(facts.indexes ?? []).map((index) => shard.caught_up[index.name] ?? 0), shard.compacted_generation);
  const folded = sstables(shard).filter((s) => s.generation <= covered);
  const age = shard.recorded_at_ms === undefined ? Infinity : Math.max(0, now_ms - shard.recorded_at_ms);
  if (folded.length === 0 || alone(facts, shard) || age < policy.retire_delay_ms) return nothing();
  return due({ job: 'retire', shard: shard.shard, sstables: folded.map(identity) }, [reason('folded_listed', folded.length, 1)]);
}

/** Whether nothing may be done on the shard. */
function alone(facts, shard) {
  const paused = facts.overrides?.['caretaker.paused'];
  const table = facts.paused || facts.mismatch || (paused !== undefined && paused.toLowerCase() !== 'false');
  return table || shard.status === 'sealed' || shard.detached || shard.pass;
}

function sstables(shard) {
  for (const sstable of shard.sstables) {
    number('generation', sstable.generation);
    // May be larger than what can be counted to: it is only compared.
    const { bytes = 0 } = sstable;
    if (!Number.isInteger(bytes) || bytes < 0) throw new Error('`bytes` is no size');
  }
  return [...shard.sstables].sort((a, b) => a.generation - b.generation);
}

const identity = ({ generation, path }) => ({ generation, path });
const crosses = ({ observed, threshold }) => observed !== null && observed >= threshold;
const nothing = (reasons = []) => ({ outcome: 'not_due', reasons });
const due = (job, reasons) => ({ outcome: 'due', jobs: [job], reasons });

function reason(measure, observed, threshold) {
  // What is not exact is not said.
  return { measure, observed: Number.isSafeInteger(observed) ? observed : null, threshold };
}

function number(name, value) {
  if (!Number.isSafeInteger(value) || value < 0) throw new Error(`\`${name}\` is no number that JavaScript can count to`);
}

/** The same bytes, unless they nest deeper than any request: reading those would end the engine. */
function flat(bytes) {
  let depth = 0;
  let quoted = false;
  for (let n = 0; n < bytes.length; n++) {
    const byte = bytes[n];
    if (quoted) {
      if (byte === 0x5c) n++;
      else if (byte === 0x22) quoted = false;
    } else if (byte === 0x22) quoted = true;
    else if (byte === 0x5b || byte === 0x7b) {
      if (++depth > DEPTH_MAX) throw new SyntaxError('nested too deep');
    } else if (byte === 0x5d || byte === 0x7d) depth--;
  }
  return bytes;
}

// The engine has no TextDecoder: nothing but the language is here. Both throw on what is no text.
function text(bytes) {
  let text = '';
  for (let from = 0; from < bytes.length; from += 4096) {
    text += String.fromCharCode.apply(null, bytes.subarray(from, from + 4096));
  }
  return /[\x80-\xff]/.test(text) ? decodeURIComponent(escape(text)) : text;
}

function bytes(value) {
  const json = JSON.stringify(value);
  const text = /[^\x00-\x7f]/.test(json) ? unescape(encodeURIComponent(json)) : json;
  return Uint8Array.from({ length: text.length }, (_, n) => text.charCodeAt(n));
}
