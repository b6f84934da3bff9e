// The part of the page that runs the table over time: its form, its worker, its charts.

import * as door from './door';
import { button, find, make, say, swap } from './dom';
import type { View } from './evaluate';
import { ganttLabel, jobsAt } from './gantt';
import { KnobForm } from './knobs';
import { totals } from './compare';
import { workloadGroupOf } from './policy';
import { Runner, Stale } from './runner';
import type { State, Store } from './state';
import { Charts } from './timeline';
import { duration, moment } from './units';
import { capital } from './words';

const HOUR = 3_600_000;
const SPANS = [1, 6, 24, 24 * 7, 24 * 30, 24 * 90, 24 * 365].map((hours) => hours * HOUR);
const SAMPLES = 400;
/** A pause in typing is as long. */
const PAUSE_MS = 150;

/** What can go wrong at the cursor, and how much of it. */
const FAULTS: [string, string, Omit<door.Fault, 'fault' | 'at_ms'>][] = [
  ['worker_dies', 'A worker dies', { silent_ms: 60_000 }],
  ['commit_conflict', 'A commit conflicts', {}],
  ['burst', 'Ten times the writes for 10 min', { for_ms: 600_000, times: 10 }],
  ['clock_back', 'The clock goes back 1 h', { by_ms: HOUR }],
  ['disk_full', 'The disk is full for 10 min', { for_ms: 600_000 }],
  ['registry_away', 'The registry is away for 10 min', { for_ms: 600_000 }],
];

const page = {
  section: find('simulation', HTMLElement),
  preset: find('preset', HTMLSelectElement),
  presetHelp: find('preset-help', HTMLElement),
  span: find('span', HTMLSelectElement),
  seed: find('seed', HTMLInputElement),
  table: find('from-table', HTMLInputElement),
  form: find('workload', HTMLElement),
  status: find('run-status', HTMLElement),
  problem: find('run-problem', HTMLElement),
  cursor: find('cursor', HTMLInputElement),
  moment: find('cursor-moment', HTMLElement),
  jobs: find('cursor-jobs', HTMLElement),
  faults: find('faults', HTMLElement),
  faultList: find('fault-list', HTMLElement),
  totals: find('totals', HTMLElement),
  gantt: find('gantt', HTMLCanvasElement),
};

export class SimulationPart {
  readonly #runner = new Runner();
  readonly #charts: Charts;
  readonly #form: KnobForm;
  #asked = '';
  #timer = 0;
  #shown: [door.Timeline, door.Timeline | undefined] | undefined;
  #cursor_ms = 0;

  constructor(readonly store: Store, readonly description: door.Description) {
    this.#charts = new Charts(find('charts', HTMLElement), page.gantt, (ms, chosen) => this.#look(ms, chosen));
    this.#charts.frames();
    const { knobs, presets } = description.workload;
    this.#form = new KnobForm(page.form, 'workload', knobs, workloadGroupOf, (key, text) => this.#knob(key, text));
    page.preset.replaceChildren(...presets.map(({ name }) => new Option(capital(name.replaceAll('-', ' ')), name)));
    page.span.replaceChildren(...SPANS.map((span) => new Option(duration(span), String(span))));
    this.#listen();
  }

  #listen(): void {
    const { store } = this;
    page.preset.addEventListener('change', () => store.run({ preset: page.preset.value, set: {} }));
    page.span.addEventListener('change', () => store.run({ duration_ms: Number(page.span.value), faults: [] }));
    page.seed.addEventListener('input', () => { if (/^\d{1,15}$/.test(page.seed.value)) store.run({ seed: Number(page.seed.value) }); });
    page.table.addEventListener('change', () => store.run({ table: page.table.checked }));
    page.cursor.addEventListener('input', () => this.#look(Number(page.cursor.value), true));
    find('zoom-in', HTMLButtonElement).addEventListener('click', () => this.#charts.zoom(0.5));
    find('zoom-out', HTMLButtonElement).addEventListener('click', () => this.#charts.zoom(2));
    find('zoom-whole', HTMLButtonElement).addEventListener('click', () => this.#charts.whole());
    page.faults.replaceChildren(...FAULTS.map(([fault, name, rest]) => button(name, () => {
      const { run } = store.state;
      store.run({ faults: [...run.faults, { fault, at_ms: this.#cursor_ms, ...rest }] });
    }, { id: `fault-${fault}` })));
  }

  #knob(key: string, text: string | undefined): void {
    const { run } = this.store.state;
    const { [key]: _, ...rest } = run.set;
    const standard = this.#preset()?.set[key] ?? this.description.workload.knobs.find((knob) => knob.key === key)?.text;
    this.store.run({ set: text === undefined || text === standard ? rest : { ...rest, [key]: text } });
  }

  /** The chosen preset; at first the one that sets nothing. */
  #preset(): door.Description['workload']['presets'][number] | undefined {
    const { presets } = this.description.workload;
    const { preset } = this.store.state.run;
    return presets.find(({ name, set }) => (preset === '' ? Object.keys(set).length === 0 : name === preset));
  }

  /** Shows the form, and runs what changed. */
  show(state: State, view: View): void {
    const { run } = state;
    const preset = this.#preset();
    page.preset.value = preset?.name ?? '';
    say(page.presetHelp, preset?.help ?? '');
    page.span.value = String(run.duration_ms);
    if (page.seed !== document.activeElement) page.seed.value = String(run.seed);
    page.table.checked = run.table;
    this.#form.show({ set: run.set, standard: this.#preset()?.set ?? {}, refused: view.workloadRefused, notes: [] });
    swap(page.faultList, ...run.faults.map((fault, at) => this.#fault(fault, at)));
    this.#run(state, view);
  }

  #fault(fault: door.Fault, at: number): HTMLElement {
    const name = FAULTS.find(([kind]) => kind === fault.fault)?.[1] ?? fault.fault;
    const { faults } = this.store.state.run;
    const remove = button('Remove', () => this.store.run({ faults: faults.filter((one) => one !== fault) }), { id: `fault-${at}-remove`, label: `Remove: ${name}` });
    return make('li', '', `${name}, after ${duration(fault.at_ms)} `, remove);
  }

  #run(state: State, view: View): void {
    const requests = [view.a, view.b].flatMap((half) => {
      if (!half) return [];
      return half.policy && view.workload ? [request(state, view, half.policy.policy)] : [undefined];
    });
    if (requests.includes(undefined) || (state.run.table && (!view.facts || view.factsError || view.nowError))) {
      page.section.classList.add('stale');
      return;
    }
    const asked = JSON.stringify(requests);
    if (asked === this.#asked) {
      page.section.classList.toggle('stale', false);
      return;
    }
    this.#asked = asked;
    this.#runner.cancel();
    clearTimeout(this.#timer);
    page.section.setAttribute('aria-busy', 'true');
    this.#timer = window.setTimeout(() => void this.#ask(asked, requests as Request[]), this.#shown ? PAUSE_MS : 0);
  }

  async #ask(asked: string, requests: Request[]): Promise<void> {
    const begun = performance.now();
    say(page.status, 'Simulating…');
    try {
      const found: door.Timeline[] = [];
      for (const simulation of requests) {
        const done = await this.#runner.ask({ task: 'simulate', simulation });
        if ('timeline' in done) found.push(done.timeline);
        if (asked !== this.#asked) return;
      }
      const [a, b] = found;
      if (a) this.#done(a, b, performance.now() - begun);
    } catch (error) {
      if (error instanceof Stale || asked !== this.#asked) return;
      say(page.status, '');
      say(page.problem, error instanceof door.Refused ? error.message : `The simulation could not be run: ${error instanceof Error ? error.message : String(error)}.`);
      page.problem.hidden = false;
      page.section.classList.add('stale');
    }
    page.section.removeAttribute('aria-busy');
  }

  #done(a: door.Timeline, b: door.Timeline | undefined, took_ms: number): void {
    this.#shown = [a, b];
    page.problem.hidden = true;
    page.section.classList.remove('stale');
    page.cursor.max = String(a.duration_ms);
    page.cursor.step = String(Math.max(1, a.samples.every_ms));
    this.#charts.show(a, b);
    page.gantt.setAttribute('aria-label', ganttLabel(a));
    page.totals.classList.toggle('two', b !== undefined);
    swap(page.totals, ...totals(a.totals, b?.totals));
    say(page.status, `${duration(a.duration_ms)} simulated in ${Math.max(1, Math.round(took_ms))} ms. ${bound(a)}`);
    this.#look(Math.min(this.#cursor_ms, a.duration_ms), true);
  }

  #look(ms: number, chosen: boolean): void {
    if (!this.#shown) return;
    const [a] = this.#shown;
    if (chosen) {
      this.#cursor_ms = ms;
      page.cursor.value = String(ms);
      page.cursor.setAttribute('aria-valuetext', `${duration(ms)} after the start: ${this.#charts.values(ms)}`);
      this.#charts.mark(ms);
    }
    say(page.moment, `${duration(ms)} after the start, ${moment(a.start_ms + ms)}`);
    say(page.jobs, jobsAt(a, ms));
  }
}

type Request = Omit<door.Simulation, 'facts'> & { facts?: string };

function request({ run, now_ms }: State, { facts, workload }: View, policy: door.Policy): Request {
  const start = run.table && facts ? { facts: facts.text, start_ms: now_ms } : {};
  return { workload: workload ?? {}, policy, ...start, duration_ms: run.duration_ms, seed: run.seed, faults: run.faults, samples: SAMPLES };
}

/** Whether the planner's promise on stale readers was kept (R2.14). */
function bound({ totals: { staleness } }: door.Timeline): string {
  if (staleness.bound_ms === null) return 'A base-only reader may fall behind without bound.';
  const kept = staleness.above ? 'did not keep to' : 'kept to';
  return `A base-only reader ${kept} the planner’s bound of ${duration(staleness.bound_ms)} and a fold.`;
}
