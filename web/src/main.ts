// The page: what is typed changes the state, the planner is asked about it, what it answers is shown.

import * as door from './door';
import { SHARDS_AT_ONCE, cards, selection } from './cards';
import { knobTable, verdictTable } from './compare';
import { find, make, say, swap } from './dom';
import { evaluate } from './evaluate';
import type { View } from './evaluate';
import { flips } from './flips';
import type { Asked, Flips } from './flips';
import { PolicyPanel } from './policy-panel';
import { Runner, Stale } from './runner';
import { Broken, decode, isLink } from './share';
import { SimulationPart } from './simulation';
import { Store, shown } from './state';
import type { State } from './state';
import { TablePanel } from './table';
import { LATER, caseOf, planOf, whatIfTable } from './whatif';
import { headline, staleness, tally } from './words';

/** What would change more than so many verdicts, or a table of so many characters, is asked for in a
 * worker: a keystroke must not wait for a thousand plans. */
const QUICK_VERDICTS = 20;
const QUICK_CHARS = 20_000;

const page = {
  main: find('main', HTMLElement),
  notice: find('notice', HTMLElement),
  summary: find('summary', HTMLElement),
  story: find('story', HTMLElement),
  headline: find('headline', HTMLElement),
  problem: find('problem', HTMLElement),
  verdicts: find('verdicts', HTMLElement),
  comparison: find('comparison', HTMLElement),
  compared: find('compared', HTMLElement),
  drawing: find('drawing', HTMLElement),
  more: find('more', HTMLInputElement),
  moreText: find('more-text', HTMLElement),
  later: find('later', HTMLInputElement),
  laterText: find('later-text', HTMLElement),
  whatIf: find('what-if-table', HTMLElement),
  whatIfSection: find('what-if', HTMLElement),
  drawingSection: find('drawing-section', HTMLElement),
};

const STORY = 'An example to begin with: one shard has four SSTables, so they are folded into the table; another waits for an index that lags. Turn a knob and see what changes, or open the facts of a table of yours.';

class Page {
  readonly store = new Store();
  readonly #description = door.describe();
  readonly #table = new TablePanel(this.store, this.#description.triggers);
  readonly #policy = new PolicyPanel(this.store, this.#description);
  readonly #simulation = new SimulationPart(this.store, this.#description);
  readonly #runner = new Runner();
  #shards = SHARDS_AT_ONCE;
  #last: { state: State; view: View; flips: Flips | undefined } | undefined;

  async start(): Promise<void> {
    page.later.max = String(LATER.length - 1);
    page.more.addEventListener('input', () => this.store.update({ more: Number(page.more.value) }));
    page.later.addEventListener('input', () => this.store.update({ later_ms: LATER[Number(page.later.value)] ?? 0 }));
    this.store.listen((state) => this.#show(state));
    addEventListener('hashchange', () => void this.#open());
    await this.#open();
    await this.#table.connect();
  }

  /** The state that the address holds, or the beginning. */
  async #open(): Promise<void> {
    page.notice.hidden = true;
    if (!isLink(location.hash)) {
      if (!this.#last) this.store.update({});
      return;
    }
    try {
      this.store.update(await decode(location.hash));
    } catch (error) {
      if (!(error instanceof Broken)) throw error;
      this.store.update({});
      say(page.notice, `The link can’t be read: ${error.message}. The page shows its defaults instead.`);
      page.notice.hidden = false;
    }
  }

  #show(state: State): void {
    const view = evaluate(state);
    this.#table.show(state, view);
    this.#policy.show(state, view);
    const half = state.side === 'b' ? view.b : view.a;
    if (half?.answer && view.facts) {
      this.#shards = this.#last?.view.facts?.text === view.facts.text ? this.#shards : SHARDS_AT_ONCE;
      this.#last = { state, view, flips: this.#flips(state, view, half.answer.plan) };
      this.#draw();
    } else if (state.facts.trim() === '') {
      this.#clear();
    } else {
      // A field in the middle of being typed is often wrong for a moment: the last verdicts then stay,
      // marked as out of date, so that the page does not jump.
      say(page.summary, 'A field has a problem, shown beside it.');
      page.main.classList.add('stale');
    }
    this.#simulation.show(state, view);
  }

  #flips(state: State, view: View, plan: door.Plan): Flips | undefined {
    const asked: Asked = { facts: view.facts?.text ?? '', set: shown(state), now_ms: state.now_ms, trigger: state.trigger };
    const { knobs } = this.#description;
    const { table, shards } = selection(plan, this.#shards);
    const wanted = [...table, ...shards.flatMap(([, places]) => places)];
    if (wanted.length <= QUICK_VERDICTS && asked.facts.length <= QUICK_CHARS) return flips(asked, plan, knobs, wanted);
    this.#runner.ask({ task: 'flips', asked, plan, knobs, wanted }).then((done) => {
      if (!('flips' in done) || this.#last?.state !== state) return;
      this.#last.flips = done.flips;
      this.#draw();
    }).catch((error: unknown) => { if (!(error instanceof Stale)) throw error; });
    return undefined;
  }

  #draw(): void {
    if (!this.#last) return;
    const { state, view, flips } = this.#last;
    const [mine, other] = state.side === 'b' ? [view.b, view.a] : [view.a, view.b];
    const plan = mine?.answer?.plan;
    if (!plan || !view.facts || !mine?.answer) return;
    say(page.story, state.source.from === 'example' ? STORY : '');
    say(page.headline, headline(plan));
    say(page.summary, `${tally(plan)}. ${staleness(plan)}`);
    const names: [string, string] = state.side === 'b' ? ['B', 'A'] : ['A', 'B'];
    const deeds = { go: (ms: number) => this.store.update({ now_ms: Math.ceil(ms / 1000) * 1000 }), set: (set: door.Changes) => this.store.policy({ ...shown(state), ...set }) };
    swap(page.verdicts, ...cards({ plan, flips, other: other?.answer?.plan, names }, deeds, this.#shards, () => {
      this.#shards += SHARDS_AT_ONCE;
      if (this.#last) this.#last.flips = this.#flips(state, view, plan);
      this.#draw();
    }));
    this.#compare(state, view);
    this.#whatIf(state, view.facts, mine.policy?.policy ?? {}, plan, flips);
    const { facts, plan: drawn } = door.drawing(view.facts, mine.answer.text, plan.at_ms);
    say(page.drawing, `${facts ?? ''}${drawn ?? ''}`);
    page.drawingSection.hidden = false;
    page.main.classList.remove('stale');
  }

  #compare({ a, b }: State, view: View): void {
    page.comparison.hidden = b === undefined;
    if (!b) return;
    const [one, two] = [view.a.answer?.plan, view.b?.answer?.plan];
    swap(page.compared, knobTable(a, b, this.#description.knobs), one && two ? verdictTable(one, two) : make('p', 'hint', 'One of the policies has a value that is refused.'));
  }

  #whatIf({ more, later_ms, now_ms, trigger }: State, facts: door.Json, policy: door.Policy, plan: door.Plan, flips: Flips | undefined): void {
    const what = { more, later_ms };
    page.more.value = String(more);
    page.later.value = String(Math.max(0, LATER.indexOf(later_ms)));
    say(page.moreText, more === 0 ? 'none' : String(more));
    say(page.laterText, later_ms === 0 ? 'now' : caseOf({ more: 0, later_ms }));
    const then = planOf(facts, policy, now_ms, trigger, what);
    swap(page.whatIf, then ? whatIfTable(plan, then, flips) : make('p', 'hint', 'These facts hold numbers that are too large to be changed here; time can be.'));
    page.whatIfSection.hidden = false;
  }

  #clear(): void {
    say(page.headline, '');
    say(page.story, '');
    say(page.summary, 'No facts yet: paste, open or drop a facts.json, or take the example.');
    swap(page.verdicts, make('p', 'hint', 'Nothing to show.'));
    for (const part of [page.drawingSection, page.whatIfSection, page.comparison]) part.hidden = true;
    page.main.classList.remove('stale');
  }
}

door.open().then(() => new Page().start()).catch((error: unknown) => {
  say(page.summary, '');
  page.problem.hidden = false;
  say(page.problem, `The planner could not be loaded: ${error instanceof Error ? error.message : String(error)}. Serve this folder with a web server and open it in a current browser.`);
});
