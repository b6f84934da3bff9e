// A worker that answers the newest question only. A run that nobody waits for any more is ended.

import { Refused } from './door';
import type { Done, Task } from './worker';

/** A stale run may go on for so long before its worker is replaced. */
const PATIENCE_MS = 1_000;

/** A newer question came. */
export class Stale extends Error {}

interface Waiting {
  task: Task & { id: number };
  resolve: (done: Done) => void;
  reject: (why: Error) => void;
  begun: number;
}

export class Runner {
  #worker: Worker | undefined;
  /** Made before it is needed: without a network none can be loaded any more. */
  #spare: Worker | undefined;
  #spareReady = false;
  #running: Waiting | undefined;
  #next: Waiting | undefined;
  #ids = 0;

  /** Throws `Stale` when a newer question comes first, `Refused` with the planner's words. */
  async ask(task: Task): Promise<Done> {
    this.#ids += 1;
    const id = this.#ids;
    const answer = new Promise<Done>((resolve, reject) => {
      this.#next?.reject(new Stale());
      this.#next = { task: { ...task, id }, resolve, reject, begun: 0 };
    });
    this.#running?.reject(new Stale());
    this.#go();
    const done = await answer;
    if ('refused' in done) throw new Refused(done.refused);
    if ('broken' in done) throw new Error(done.broken);
    return done;
  }

  /** What runs or waits is of no interest any more. */
  cancel(): void {
    this.#running?.reject(new Stale());
    this.#next?.reject(new Stale());
    this.#next = undefined;
  }

  #go(): void {
    const running = this.#running;
    if (running) {
      const left = running.begun + PATIENCE_MS - performance.now();
      if (left <= 0) this.#replace();
      else setTimeout(() => { if (this.#running === running && this.#next) this.#go(); }, left);
      if (this.#running) return;
    }
    const next = this.#next;
    if (!next) return;
    [this.#running, this.#next] = [next, undefined];
    next.begun = performance.now();
    this.#worker ??= this.#adopt(start());
    this.#worker.postMessage(next.task);
  }

  #adopt(worker: Worker): Worker {
    worker.onmessage = ({ data }: MessageEvent<Done | 'ready' | 'broken'>) => {
      if (data === 'ready') return this.#prepare();
      if (data === 'broken') return this.#fail('the planner could not be loaded');
      const running = this.#running;
      if (running?.task.id !== data.id) return undefined;
      this.#running = undefined;
      running.resolve(data);
      return this.#go();
    };
    worker.onerror = () => this.#fail('it could not be started');
    return worker;
  }

  #fail(why: string): void {
    this.#running?.reject(new Error(why));
    this.#next?.reject(new Error(why));
    this.#worker?.terminate();
    [this.#running, this.#next, this.#worker] = [undefined, undefined, undefined];
  }

  #prepare(): void {
    if (this.#spare) return;
    const spare = start();
    this.#spare = spare;
    spare.onmessage = ({ data }) => { this.#spareReady = data === 'ready'; };
    spare.onerror = () => { this.#spare = undefined; };
  }

  /** Ends what runs, if there is another worker to go on with; else it is waited for. */
  #replace(): void {
    if (!this.#spare || !this.#spareReady) return;
    this.#worker?.terminate();
    this.#worker = this.#adopt(this.#spare);
    [this.#spare, this.#spareReady, this.#running] = [undefined, false, undefined];
    this.#prepare();
  }
}

function start(): Worker {
  return new Worker(new URL('./worker.ts', import.meta.url), { type: 'module' });
}
