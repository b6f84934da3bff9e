// What is asked of the server that this page came from, and of nobody else.

const KEY = 'caretaker-key';
/** The longest wait before the stream is opened again. */
const AGAIN_MS_MAX = 15_000;

export interface Reading {
  version: number;
  rows: number | null;
  fragments: number | null;
  shards: number;
  unfolded: number;
  folded_listed: number;
  sstable_bytes: number;
  oldest_unfolded_at_ms: number | null;
  lagging: { index: string; rows: number } | null;
  cleanup_off: string | null;
  work: string;
  base_bytes: number | null;
  versions: number | null;
  staleness_bound_ms: number | null;
  lines: string[];
  complaints: string[];
}

export interface Table {
  table: string;
  word: string;
  owner?: string;
  evaluated_at_ms?: number;
  failing?: { why: string; times: number; retry_at_ms: number };
  seen?: Reading;
}

export interface Job {
  id: string;
  kind: string;
  table: string;
  shard: string | null;
  state: 'pending' | 'running' | 'paused' | 'succeeded' | 'failed' | 'cancelled';
  created_ms: number;
  started_ms: number | null;
  ended_ms: number | null;
  heartbeat_ms: number | null;
  attempt: number;
  worker: string | null;
  ask: string | null;
  stage: string | null;
  rows_done: number;
  rows_total: number;
  outcome: string | null;
  why: string | null;
  lease_expired: boolean;
}

export interface Decided {
  id: number;
  at_ms: number;
  table: string;
  lines: string[];
  policy: string;
}

export interface Member {
  name: string;
  role: 'agent' | 'worker';
  root: string;
  host: string;
  pid: number;
  version: string;
}

/** All that is to be seen, or what of it has changed. */
export interface Fleet {
  at_ms: number;
  agent: Member;
  root: string;
  draining: boolean;
  away: boolean;
  coverage: Record<string, number>;
  planner: string;
  sweep_ms: number;
  members: Member[];
  memory_bytes: number;
  tables_total: number;
  tables_found: number;
  words: Record<string, number>;
  tables: Table[];
  gone: string[];
  jobs: Job[] | null;
  decisions: Decided[];
}

/** Who holds how much of a table. */
export interface Space {
  holders: { refused: string | null; removes: { bytes: number; files: number; versions: number[] } };
  rows: { who: string; versions: string; files: number; bytes: number }[];
}

/** The server said no; its words, and the status. */
export class Refused extends Error {
  constructor(readonly status: number, why: string) {
    super(why);
  }
}

export function key(): string {
  return sessionStorage.getItem(KEY) ?? '';
}

export function remember(text: string): void {
  if (text) sessionStorage.setItem(KEY, text);
  else sessionStorage.removeItem(KEY);
}

async function ask(path: string, options: RequestInit): Promise<Response> {
  const headers = new Headers(options.headers);
  if (key()) headers.set('x-api-key', key());
  const response = await fetch(path, { ...options, headers });
  if (response.ok) return response;
  const text = await response.text();
  throw new Refused(response.status, why(text) || `${response.status} ${response.statusText}`);
}

function why(text: string): string {
  try {
    const { error } = JSON.parse(text) as { error?: unknown };
    return typeof error === 'string' ? error : text;
  } catch {
    return text;
  }
}

const of = (table: string, what: string) => `/v1/table/${encodeURIComponent(table)}/${what}`;

/** What is read of a table, as text: a 64-bit number survives that. */
export async function plan(table: string): Promise<string> {
  return (await ask(of(table, 'plan'), {})).text();
}

export async function space(table: string): Promise<Space> {
  return (await (await ask(of(table, 'space'), {})).json()) as Space;
}

async function post(path: string, body: object = {}): Promise<void> {
  await ask(path, { method: 'POST', body: JSON.stringify(body), headers: { 'content-type': 'application/json' } });
}

export const evaluate = (table: string) => post(of(table, 'evaluate'));
export const compact = (table: string) => post('/v1/compact', { table });
export const pause = (table: string) => post(of(table, 'pause'));
export const resume = (table: string) => post(of(table, 'resume'));
export const cancel = (job_id: string) => post('/v1/jobs/cancel', { job_id });

/** What `follow` tells. */
export interface Follower {
  /** `first` of a stream: all of it. */
  seen: (fleet: Fleet, first: boolean) => void;
  /** The stream ended; it is opened again in so many milliseconds. */
  lost: (error: unknown, again_ms: number) => void;
}

/** Follows the fleet until it is stopped, over any loss of the connection. */
export function follow(find: string, follower: Follower): () => void {
  const stop = new AbortController();
  void (async () => {
    for (let lost = 0; !stop.signal.aborted; lost += 1) {
      try {
        const address = `/v1/fleet/events?${new URLSearchParams({ find, limit: '500' })}`;
        const response = await ask(address, { signal: stop.signal, headers: { accept: 'text/event-stream' } });
        let first = true;
        for await (const data of events(response)) {
          follower.seen(JSON.parse(data) as Fleet, first);
          [first, lost] = [false, 0];
        }
        throw new Error('the server ended the connection');
      } catch (error) {
        if (stop.signal.aborted) return;
        const again = Math.min(AGAIN_MS_MAX, 1_000 * 2 ** lost);
        follower.lost(error, again);
        await new Promise((resolve) => { setTimeout(resolve, again); });
      }
    }
  })();
  return () => stop.abort();
}

/** The data of server-sent events. (`EventSource` can't send a key.) */
async function* events(response: Response): AsyncGenerator<string> {
  if (!response.body) return;
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const blocks = (rest + value).split(/\r?\n\r?\n/);
    rest = blocks.pop() ?? '';
    for (const block of blocks) {
      const data = block.split(/\r?\n/).filter((line) => line.startsWith('data:')).map((line) => line.slice(5).trimStart());
      if (data.length > 0) yield data.join('\n');
    }
  }
}
