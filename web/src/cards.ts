// A plan as cards: one a verdict, with what was compared and what would change it.

import type { Changes, Outcome, Plan, Reason, Verdict } from './door';
import { breakable, button, draw, make } from './dom';
import type { Flip, Flips } from './flips';
import { duration, moment } from './units';
import { DECISIONS, OUTCOMES, compared, holder, margin, measure, short, switchedOff, work } from './words';

/** Shards that are drawn at once; a table may have thousands. */
export const SHARDS_AT_ONCE = 24;

export interface Deeds {
  /** Sets the time. */
  go(ms: number): void;
  /** Sets a knob. */
  set(changes: Changes): void;
}

export interface Shown {
  plan: Plan;
  /** What would change each verdict; nothing while it is looked for. */
  flips: Flips | undefined;
  /** The plan of the other policy, and how the two are called. */
  other?: Plan;
  names: [string, string];
}

/** Verdicts by their places in the plan: the table's, those of the shards that are shown, and how many
 * shards are not. What something is to be done about comes first where there are many shards, as the
 * order of their ids says nothing to people. */
export function selection(plan: Plan, shardsShown: number): { table: number[]; shards: [string, number[]][]; rest: number } {
  const groups = new Map<string | undefined, number[]>();
  plan.verdicts.forEach(({ shard }, at) => groups.set(shard, [...(groups.get(shard) ?? []), at]));
  const table = groups.get(undefined) ?? [];
  groups.delete(undefined);
  const shards = [...groups] as [string, number[]][];
  const isBusy = ([, places]: [string, number[]]) => places.some((at) => ['due', 'held'].includes(plan.verdicts[at]?.outcome ?? ''));
  const sorted = shards.length > SHARDS_AT_ONCE ? [...shards.filter(isBusy), ...shards.filter((one) => !isBusy(one))] : shards;
  return { table, shards: sorted.slice(0, shardsShown), rest: Math.max(0, sorted.length - shardsShown) };
}

/** The table's cards, then each shard's below its name. */
export function cards(shown: Shown, deeds: Deeds, shardsShown: number, more: () => void): HTMLElement[] {
  const { plan } = shown;
  const { table, shards, rest } = selection(plan, shardsShown);
  const groups = [group(`Table ${plan.table}`, `version ${plan.version}`, table.map((at) => card(shown, at, deeds)))];
  for (const [shard, places] of shards) {
    groups.push(group(`Shard ${short(shard)}`, '', places.map((at) => card(shown, at, deeds)), shard));
  }
  if (rest > 0) {
    groups.push(make('p', 'more', button(`Show ${Math.min(SHARDS_AT_ONCE, rest)} of ${rest} more shards`, more, { id: 'more-shards' })));
  }
  if (plan.complaints?.length) groups.push(complaints(plan.complaints));
  return groups;
}

function group(name: string, remark: string, cards: HTMLElement[], title = ''): HTMLElement {
  const heading = make('h3', '', name, remark ? make('span', 'remark', ` ${remark}`) : '');
  if (title) heading.title = title;
  return make('div', 'group', heading, make('div', 'cards', ...cards));
}

function card(shown: Shown, at: number, deeds: Deeds): HTMLElement {
  const { plan, other, names } = shown;
  const verdict = plan.verdicts[at] as Verdict;
  const { name, help } = DECISIONS[verdict.decision] ?? { name: verdict.decision, help: '' };
  const element = make('article', `card ${verdict.outcome}`);
  element.id = `card-${at}`;
  element.tabIndex = -1;
  element.dataset.decision = verdict.decision;
  if (verdict.shard) element.dataset.shard = verdict.shard;
  const badges = make('span', 'badges', badge(verdict.outcome));
  const differs = other?.verdicts.find((v) => v.decision === verdict.decision && v.shard === verdict.shard);
  if (differs && differs.outcome !== verdict.outcome) {
    element.classList.add('differs');
    badges.replaceChildren(badge(verdict.outcome, names[0]), badge(differs.outcome, names[1]));
  }
  element.append(
    make('header', '', make('h4', '', name), badges, make('p', 'help', help)),
    make('div', 'why', ...body(verdict, plan.at_ms)),
    flipList(shown.flips?.[at], plan.at_ms, element.id, deeds),
  );
  return element;
}

export function badge(outcome: Outcome, of = ''): HTMLElement {
  return make('span', `badge ${outcome}`, of ? make('b', 'of', of) : '', OUTCOMES[outcome]);
}

function body(verdict: Verdict, at_ms: number): HTMLElement[] {
  if (verdict.outcome === 'disabled') return [make('p', 'note', `Switched off by ${switchedOff(verdict.knob)}.`)];
  const parts: HTMLElement[] = [];
  if (verdict.outcome === 'due') parts.push(...verdict.jobs.map((job) => make('p', 'note job', work(job))));
  if (verdict.outcome === 'held') parts.push(make('p', 'note wait', `Waits for ${holder(verdict.hold, at_ms)}.`));
  const reasons = verdict.reasons.map((one, at) => reason(one, verdict.outcome === 'due' && at === 0));
  parts.push(make('ul', 'reasons', ...reasons));
  return parts;
}

function reason(one: Reason, decides: boolean): HTMLLIElement {
  const { before, numbers, after } = compared(one);
  const line = make('span', 'line', `${before} `, make('span', 'number', ...whole(numbers)), after ? ` ${after}` : '');
  const item = make('li', decides ? 'reason decides' : 'reason', line);
  const { observed, threshold } = one;
  if (measure(one).bar && observed !== null && threshold) {
    item.append(make('span', 'margin', margin(one)), gauge(observed, threshold));
  }
  return item;
}

/** Only between "unmeasured" and what is needed may a comparison break. */
function whole(numbers: string): (string | HTMLElement)[] {
  return numbers.split(/(?<=, )/).map((part) => make('span', 'whole', part));
}

/** How much of the threshold is reached; the numbers beside it say the same in words. */
function gauge(observed: number, threshold: number): HTMLElement {
  const most = Math.max(observed, threshold * 1.1);
  const share = (value: number) => Math.min(100, (value / most) * 100);
  const bar = make('span', 'gauge');
  bar.append(
    draw('svg', {},
      draw('rect', { class: 'rail', y: 2, width: '100%', height: 4, rx: 2 }),
      draw('rect', { class: 'fill', y: 2, width: `${share(observed)}%`, height: 4, rx: 2 }),
      draw('rect', { class: 'mark', x: `${share(threshold)}%`, width: 2, height: 8 })),
  );
  bar.setAttribute('aria-hidden', 'true');
  return bar;
}

function flipList(flips: Flip[] | undefined, at_ms: number, id: string, deeds: Deeds): HTMLElement {
  const heading = make('h5', '', 'What would change it');
  if (flips === undefined) return make('div', 'flips', heading, make('p', 'help', 'Asking the planner…'));
  if (flips.length === 0) return make('div', 'flips', heading, make('p', 'help', 'No single setting, and not time alone.'));
  const items = flips.map((flip, at) => {
    const [text, act] = words(flip, at_ms, deeds);
    const then = make('span', 'then', '→ ', OUTCOMES[flip.then]);
    const item = make('li', 'flip', make('span', 'case', ...text, ' ', then));
    // The button goes with the list that its deed redraws, so the card takes the focus.
    if (act) {
      const deed = () => { act.run(); document.getElementById(id)?.focus({ preventScroll: true }); };
      item.append(button(act.name, deed, { id: `${id}-flip-${at}`, label: act.label }));
    }
    return item;
  });
  return make('div', 'flips', heading, make('ul', '', ...items));
}

interface Act { name: string; label: string; run(): void }

function words(flip: Flip, at_ms: number, deeds: Deeds): [(string | HTMLElement)[], Act | undefined] {
  switch (flip.by) {
    case 'time': {
      const when = moment(flip.at_ms);
      return [[`By time alone in ${duration(flip.at_ms - at_ms)}, ${when}`],
        { name: 'Go there', label: `Go there: set now to ${when}`, run: () => deeds.go(flip.at_ms) }];
    }
    case 'knob':
      return [[make('code', '', ...breakable(flip.key)), ` ${flip.limit}`],
        { name: 'Try', label: `Try: set ${flip.key} to ${flip.text}`, run: () => deeds.set({ [flip.key]: flip.text }) }];
    case 'growth':
    case 'release':
      return [[flip.what], undefined];
  }
}

function complaints(found: { key: string; why: string }[]): HTMLElement {
  const items = found.map(({ key, why }) => make('li', '', make('code', '', key), ` ${why}`));
  return make('div', 'group complaints', make('h3', '', 'Keys of the table’s config that are not followed'), make('ul', '', ...items));
}
