// What takes long runs here, so that the page stays responsive: simulations, and questions about large tables.

import * as door from './door';
import type { Simulation, Timeline } from './door';
import { flips } from './flips';
import type { Asked, Flips } from './flips';

export type Task =
  | { task: 'simulate'; simulation: Omit<Simulation, 'facts'> & { facts?: string } }
  | { task: 'flips'; asked: Asked; plan: door.Plan; knobs: door.Knob[]; wanted: number[] };

export type Done = { id: number } & ({ timeline: Timeline } | { flips: Flips } | { refused: string } | { broken: string });

const ready = door.open().then(
  () => postMessage('ready'),
  (error: unknown) => { postMessage('broken'); throw error; },
);

addEventListener('message', ({ data }: MessageEvent<Task & { id: number }>) => {
  void ready.then(() => postMessage(answer(data)), () => undefined);
});

function answer(task: Task & { id: number }): Done {
  const { id } = task;
  try {
    if (task.task === 'flips') return { id, flips: flips(task.asked, task.plan, task.knobs, task.wanted) };
    const { facts, ...rest } = task.simulation;
    const { start_ms, duration_ms, samples, jobs, jobs_left_out, faults, totals } = door.simulate({ ...rest, facts: facts === undefined ? undefined : new door.Json(facts) });
    // The rest of the answer (facts, plan) may be large, and nobody looks at it.
    return { id, timeline: { start_ms, duration_ms, samples, jobs, jobs_left_out, faults, totals } };
  } catch (error) {
    if (error instanceof door.Refused) return { id, refused: error.message };
    return { id, broken: error instanceof Error ? error.message : String(error) };
  }
}
