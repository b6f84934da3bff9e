// The state as a link, and back. All of it stands in the fragment, which no server sees.

import type { Changes, Fault } from './door';
import { EXAMPLE, EXAMPLE_NOW_MS, FACTS_BYTES_MAX, initial } from './state';
import type { State } from './state';

const MARK = '#p1=';
/** Browsers and chats cut longer addresses. */
const LINK_CHARS_MAX = 60_000;

/** What stands in a link: only what differs from the page's beginning. */
interface Shared {
  facts?: string;
  now?: number;
  by?: string;
  a?: Changes;
  b?: Changes;
  side?: 'b';
  run?: Partial<State['run']>;
}

export class Broken extends Error {}

/** Whether a fragment is meant to be a link of this page. */
export function isLink(fragment: string): boolean {
  return /^#p\d*=/.test(fragment);
}

/** Throws `Broken` where the facts are too large. */
export async function encode(state: State): Promise<string> {
  const first = initial();
  const run = Object.entries(state.run).filter(([key, value]) => JSON.stringify(value) !== JSON.stringify(first.run[key as keyof State['run']]));
  const shared: Shared = {
    ...(state.facts === EXAMPLE ? {} : { facts: state.facts }),
    ...(state.now_ms === EXAMPLE_NOW_MS || !Number.isFinite(state.now_ms) ? {} : { now: state.now_ms }),
    ...(state.trigger === first.trigger ? {} : { by: state.trigger }),
    ...(Object.keys(state.a).length === 0 ? {} : { a: state.a }),
    ...(state.b === undefined ? {} : { b: state.b }),
    ...(state.side === 'b' ? { side: 'b' as const } : {}),
    ...(run.length === 0 ? {} : { run: Object.fromEntries(run) }),
  };
  const packed = await through(new TextEncoder().encode(JSON.stringify(shared)), new CompressionStream('deflate-raw'), Infinity);
  const fragment = MARK + base64(packed);
  if (fragment.length > LINK_CHARS_MAX) {
    throw new Broken(`The facts are too large for a link (${fragment.length} characters). Download the record instead, and open it here.`);
  }
  return fragment;
}

/** Throws `Broken`, with a message for people. */
export async function decode(fragment: string): Promise<State> {
  if (!fragment.startsWith(MARK)) throw new Broken('it was made by another version of this page');
  let shared: unknown;
  try {
    const packed = bytes(fragment.slice(MARK.length));
    const text = await through(packed, new DecompressionStream('deflate-raw'), FACTS_BYTES_MAX);
    shared = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(text));
  } catch {
    throw new Broken('it is cut off or was changed on its way');
  }
  if (!isShared(shared)) throw new Broken('it holds something that this page does not know');
  const first = initial();
  return {
    ...first,
    facts: shared.facts ?? first.facts,
    source: shared.facts === undefined ? first.source : { from: 'link' },
    now_ms: shared.now ?? first.now_ms,
    trigger: shared.by ?? first.trigger,
    a: shared.a ?? {},
    b: shared.b,
    side: shared.b && shared.side ? 'b' : 'a',
    run: { ...first.run, ...shared.run },
  };
}

type Check = (value: unknown) => boolean;
const isText: Check = (value) => typeof value === 'string';
const isNumber: Check = (value) => typeof value === 'number' && Number.isFinite(value) && value >= 0;
const isChanges: Check = (value) => isObject(value) && Object.values(value).every(isText);

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function fits(value: unknown, checks: Record<string, Check>): boolean {
  return isObject(value) && Object.entries(value).every(([key, member]) => Object.hasOwn(checks, key) && checks[key]?.(member));
}

const FAULT: Record<keyof Fault, Check> = { fault: isText, at_ms: isNumber, silent_ms: isNumber, for_ms: isNumber, by_ms: isNumber, times: isNumber };
const RUN: Record<keyof State['run'], Check> = {
  preset: isText,
  set: isChanges,
  table: (value) => typeof value === 'boolean',
  duration_ms: isNumber,
  seed: isNumber,
  faults: (value) => Array.isArray(value) && value.every((fault) => fits(fault, FAULT) && isText((fault as Fault).fault) && isNumber((fault as Fault).at_ms)),
};
const SHARED: Record<keyof Shared, Check> = {
  facts: isText,
  now: isNumber,
  by: isText,
  a: isChanges,
  b: isChanges,
  side: (value) => value === 'b',
  run: (value) => fits(value, RUN),
};

function isShared(value: unknown): value is Shared {
  return fits(value, SHARED);
}

/** Throws when more than `most` bytes come out: a small link can hold a large nothing. */
async function through(input: Uint8Array<ArrayBuffer>, by: CompressionStream | DecompressionStream, most: number): Promise<Uint8Array<ArrayBuffer>> {
  const parts: Uint8Array<ArrayBuffer>[] = [];
  let size = 0;
  const reader = new Blob([input]).stream().pipeThrough(by).getReader();
  for (let next = await reader.read(); !next.done; next = await reader.read()) {
    size += next.value.length;
    if (size > most) throw new RangeError('too large');
    parts.push(next.value as Uint8Array<ArrayBuffer>);
  }
  return new Uint8Array(await new Blob(parts).arrayBuffer());
}

function base64(bytes: Uint8Array): string {
  let text = '';
  for (let at = 0; at < bytes.length; at += 8192) text += String.fromCharCode(...bytes.subarray(at, at + 8192));
  return btoa(text).replaceAll('+', '-').replaceAll('/', '_').replace(/=+$/, '');
}

function bytes(text: string): Uint8Array<ArrayBuffer> {
  const plain = atob(text.replaceAll('-', '+').replaceAll('_', '/'));
  return Uint8Array.from(plain, (letter) => letter.charCodeAt(0));
}
