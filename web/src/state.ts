// All that the page knows, in one object. What is typed changes it; everything shown follows from it.

import type { Changes, Fault } from './door';
import example from './example.json?raw';

/** Where the facts come from, for people. */
export type Source = { from: 'example' | 'typed' | 'link' } | { from: 'file' | 'table'; name: string };

export type Side = 'a' | 'b';

/** What the simulation runs. */
export interface Run {
  /** A workload's name; empty: the defaults. */
  preset: string;
  /** What differs from it, as typed. */
  set: Changes;
  /** Starts from the table shown, not from one that the workload describes. */
  table: boolean;
  duration_ms: number;
  seed: number;
  faults: Fault[];
}

export interface State {
  /** As they were typed, JSON or not. */
  facts: string;
  source: Source;
  /** `NaN` while the field holds no moment. */
  now_ms: number;
  trigger: string;
  /** Knobs that differ from their default, as typed. */
  a: Changes;
  /** The policy beside it, when two are compared. */
  b: Changes | undefined;
  /** Which of them the form shows. */
  side: Side;
  /** What if: SSTables more, and time later. */
  more: number;
  later_ms: number;
  run: Run;
}

export const EXAMPLE = example;
/** The time the example was taken at: 2026-01-15 12:00:00 UTC. */
export const EXAMPLE_NOW_MS = 1_768_478_400_000;
export const DAY_MS = 86_400_000;
export const FACTS_BYTES_MAX = 32 * 1024 * 1024;

export function initial(): State {
  return {
    facts: EXAMPLE,
    source: { from: 'example' },
    now_ms: EXAMPLE_NOW_MS,
    trigger: 'tick',
    a: {},
    b: undefined,
    side: 'a',
    more: 0,
    later_ms: 0,
    run: { preset: '', set: {}, table: true, duration_ms: DAY_MS, seed: 1, faults: [] },
  };
}

/** The policy that the form shows. */
export function shown(state: State): Changes {
  return (state.side === 'b' ? state.b : undefined) ?? state.a;
}

export class Store {
  #state = initial();
  readonly #listeners: ((state: State) => void)[] = [];

  get state(): State {
    return this.#state;
  }

  listen(listener: (state: State) => void): void {
    this.#listeners.push(listener);
  }

  update(changed: Partial<State>): void {
    this.#state = { ...this.#state, ...changed };
    for (const listener of this.#listeners) listener(this.#state);
  }

  /** One knob of the policy that the form shows; without a text it has its default. */
  knob(key: string, text: string | undefined): void {
    const { [key]: _, ...rest } = shown(this.#state);
    this.policy(text === undefined ? rest : { ...rest, [key]: text });
  }

  /** Some of what the simulation runs. */
  run(changed: Partial<Run>): void {
    this.update({ run: { ...this.#state.run, ...changed } });
  }

  /** The policy that the form shows. */
  policy(set: Changes): void {
    this.update(this.#state.side === 'b' ? { b: set } : { a: set });
  }
}
