// What leaves the page as a file: the settings, and the record of a decision.

import type { Answer, CheckedPolicy, Json } from './door';
import { members } from './json';
import { initial } from './state';
import type { State } from './state';

/** How Caretaker's own records name the policy behind a decision: SHA-256 over planner, policy and the
 * settings of a plugin, of which there are none here. Nothing where the browser has no digest. */
export async function policyHash(planner: string, policy: CheckedPolicy): Promise<string | undefined> {
  // Only a secure context has it: https, or this machine.
  if (!globalThis.crypto?.subtle) return undefined;
  const text = new TextEncoder().encode(`${planner}\n${policy.canonical}\n{}`);
  const digest = new Uint8Array(await crypto.subtle.digest('SHA-256', text));
  return [...digest].map((byte) => byte.toString(16).padStart(2, '0')).join('');
}

/** The record: what was known, by which policy, and what followed. Numbers stand as they stood. */
export function record(state: State, facts: Json, policy: CheckedPolicy, answer: Answer, planner: string, hash: string | undefined): string {
  const set = state.side === 'b' ? state.b : state.a;
  const parts: [string, string][] = [
    ['facts', facts.text],
    ['policy', policy.canonical],
    ['now_ms', JSON.stringify(state.now_ms)],
    ['trigger', JSON.stringify(state.trigger)],
    ['config', '{}'],
    ['plan', answer.text.text],
    ['planner', JSON.stringify(planner)],
    ['policy_sha256', JSON.stringify(hash ?? null)],
    ['set', JSON.stringify(set ?? {})],
  ];
  return `{\n${parts.map(([key, text]) => `  ${JSON.stringify(key)}: ${text}`).join(',\n')}\n}\n`;
}

/** The state that a record was made from; nothing where `text` is no record but facts, or neither. */
export function opened(text: string): Partial<State> | undefined {
  try {
    if (!(JSON.parse(text) instanceof Object)) return undefined;
  } catch {
    return undefined;
  }
  const parts = members(text);
  const [facts, now, trigger, set] = ['facts', 'now_ms', 'trigger', 'set'].map((key) => parts.get(key));
  if (!facts || !now || !parts.has('plan')) return undefined;
  const changes: unknown = set ? JSON.parse(set) : {};
  const isSet = changes instanceof Object && Object.values(changes).every((value) => typeof value === 'string');
  return {
    facts,
    now_ms: Number(now),
    trigger: trigger ? String(JSON.parse(trigger)) : initial().trigger,
    a: isSet ? (changes as State['a']) : {},
    b: undefined,
    side: 'a',
  };
}
