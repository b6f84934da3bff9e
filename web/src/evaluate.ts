// What follows from the state: the policies as the planner reads them, the plans, or what is wrong.

import * as door from './door';
import type { State } from './state';

/** One policy and its plan, as far as they go. */
export interface Half {
  /** Knobs the planner refuses, with its own words. */
  refused: Record<string, string>;
  policy?: door.CheckedPolicy;
  answer?: door.Answer;
}

export interface View {
  /** The facts, once they are JSON at all. */
  facts?: door.Json;
  factsError: string;
  nowError: string;
  a: Half;
  b?: Half;
  /** What the simulation writes, or the knobs the planner refuses. */
  workload?: door.Workload;
  workloadRefused: Record<string, string>;
}

export function evaluate(state: State): View {
  const { facts, error } = read(state.facts);
  const knowsNow = Number.isFinite(state.now_ms) && state.now_ms >= 0;
  const view: View = {
    facts,
    factsError: error,
    nowError: knowsNow ? '' : 'a date and a time from 1970 on are needed',
    a: half(state.a),
    b: state.b && half(state.b),
    ...written(state),
  };
  if (!facts) return view;
  // The facts are judged even while something else is wrong, so that each message stands by itself.
  for (const side of [view.a, view.b]) {
    if (!side) continue;
    try {
      const answer = door.plan(facts, side.policy?.policy ?? {}, knowsNow ? state.now_ms : 0, state.trigger);
      if (side.policy && knowsNow) side.answer = answer;
    } catch (refused) {
      if (!(refused instanceof door.Refused)) throw refused;
      view.factsError = refused.message;
    }
  }
  return view;
}

function read(typed: string): { facts?: door.Json; error: string } {
  const text = typed.trim();
  if (text === '') return { error: '' };
  try {
    JSON.parse(text);
    return { facts: new door.Json(text), error: '' };
  } catch (error) {
    return { error: `not JSON: ${error instanceof Error ? error.message : String(error)}` };
  }
}

function half(set: door.Changes): Half {
  const refused = refusals(set, (one) => door.policy(one));
  return Object.keys(refused).length > 0 ? { refused } : { refused, policy: door.policy(set) };
}

function written({ run }: State): Pick<View, 'workload' | 'workloadRefused'> {
  const workloadRefused = refusals(run.set, (one) => door.workload('', one));
  if (Object.keys(workloadRefused).length > 0) return { workloadRefused };
  try {
    return { workloadRefused, workload: door.workload(run.preset, run.set) };
  } catch (error) {
    if (!(error instanceof door.Refused)) throw error;
    return { workloadRefused: { preset: error.message } };
  }
}

/** Each knob is asked about alone, so that the message stands where the mistake is. */
function refusals(set: door.Changes, ask: (one: door.Changes) => unknown): Record<string, string> {
  const refused: Record<string, string> = {};
  for (const [key, text] of Object.entries(set)) {
    try {
      ask({ [key]: text });
    } catch (error) {
      if (!(error instanceof door.Refused)) throw error;
      refused[key] = error.message;
    }
  }
  return refused;
}
