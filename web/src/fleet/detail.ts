// What one table opens to: what waits, what can be done, the whole plan, who holds its space.

import type * as door from '../door';
import { button, make, swap } from '../dom';
import { bytes, count, duration, many, moment } from '../units';
import { DECISIONS, OUTCOMES, compared, holder, short, switchedOff, tally, work } from '../words';
import * as server from './server';
import type { Table } from './server';

/** What is asked of the server on somebody's behalf, and what became of it. */
export type Act = (what: string, work: () => Promise<void>) => void;

export class Detail {
  private readonly open = new Map<string, HTMLElement>();

  constructor(private readonly act: Act) {}

  isOpen(table: string): boolean {
    return this.open.has(table);
  }

  toggle(table: string): void {
    if (!this.open.delete(table)) this.open.set(table, make('div', 'more'));
  }

  row(table: Table, columns: number): HTMLTableRowElement {
    const cell = make('td', 'detail');
    cell.colSpan = columns;
    const more = this.open.get(table.table) ?? make('div', 'more');
    cell.append(...this.known(table), this.actions(table, more), more);
    return make('tr', 'detail-row', cell);
  }

  private known({ seen, failing }: Table): HTMLElement[] {
    if (!seen) return [make('p', 'hint', failing ? failing.why : 'Nothing is known of it yet.')];
    const facts = [
      `version ${count(seen.version)}`,
      seen.versions === null ? '' : `${many(seen.versions, 'version')} retained`,
      seen.cleanup_off === null ? '' : `cleanup off (${seen.cleanup_off})`,
      seen.lagging === null ? '' : `index ${seen.lagging.index} lacks ${many(seen.lagging.rows, 'row')}`,
      behind(seen.staleness_bound_ms),
    ];
    const lines = seen.lines.length > 0 ? make('pre', 'lines', seen.lines.join('\n')) : make('p', 'hint', 'Nothing is due or held.');
    lines.tabIndex = 0;
    const complaints = seen.complaints.map((text) => make('p', 'why-bad', text));
    return [make('p', 'hint', facts.filter(Boolean).join(' · ')), lines, ...complaints];
  }

  private actions(table: Table, more: HTMLElement): HTMLElement {
    const name = table.table;
    if (table.owner) return make('p', 'hint', `Act on the page of ${table.owner}.`);
    const on = (text: string, done: string, work: () => Promise<void>) =>
      button(text, () => this.act(`${done} \`${name}\``, work), { label: `${text} ${name}`, id: `${text}-${name}` });
    const paused = table.word === 'disabled';
    const look = (text: string, draw: () => Promise<HTMLElement>) =>
      button(text, () => { void show(more, draw); }, { label: `${text} of ${name}`, id: `${text}-${name}` });
    const preview = make('a', 'button', 'Preview a policy');
    preview.href = `./preview/?table=${encodeURIComponent(name)}`;
    return make(
      'div', 'row acts',
      on('Evaluate now', 'Asked to evaluate', () => server.evaluate(name)),
      ...((table.seen?.shards ?? 0) > 0 ? [on('Fold now', 'Asked to fold', () => server.compact(name))] : []),
      paused
        ? on('Resume', 'Resumed', () => server.resume(name))
        : on('Pause', 'Paused', () => server.pause(name)),
      look('Why, and why not', () => verdicts(name)),
      look('Who holds its space', () => holders(name)),
      preview,
    );
  }
}

function behind(bound: number | null): string {
  if (bound === null) return 'a reader of the base may fall behind without bound';
  return bound === 0 ? 'the base holds everything' : `a reader of the base is at most ${duration(bound)} behind`;
}

async function show(more: HTMLElement, draw: () => Promise<HTMLElement>): Promise<void> {
  more.setAttribute('aria-busy', 'true');
  if (more.childElementCount === 0) more.append(make('p', 'hint', 'Reading the table…'));
  try {
    swap(more, await draw());
  } catch (error) {
    swap(more, make('p', 'problem', error instanceof Error ? error.message : String(error)));
  }
  more.removeAttribute('aria-busy');
}

async function verdicts(name: string): Promise<HTMLElement> {
  const plan = JSON.parse(await server.plan(name)) as door.Plan;
  const lines = plan.verdicts.map((verdict) => {
    const of = verdict.shard ? make('small', '', `shard ${short(verdict.shard)}`) : '';
    const decision = make('th', '', DECISIONS[verdict.decision]?.name ?? verdict.decision, of);
    decision.scope = 'row';
    const badge = make('span', `badge ${verdict.outcome}`, OUTCOMES[verdict.outcome]);
    return make('tr', '', decision, make('td', '', badge), make('td', 'why', ...why(verdict, plan.at_ms)));
  });
  return make('div', '', make('p', 'hint', tally(plan)), grid(['Decision', 'Verdict', 'Why'], lines, 'verdicts'));
}

function why(verdict: door.Verdict, at_ms: number): HTMLElement[] {
  if (verdict.outcome === 'disabled') return [make('p', '', `Switched off by ${switchedOff(verdict.knob)}.`)];
  const parts: HTMLElement[] = [];
  if (verdict.outcome === 'due') parts.push(...verdict.jobs.map((job) => make('p', 'number', work(job))));
  if (verdict.outcome === 'held') parts.push(make('p', '', `Waits for ${holder(verdict.hold, at_ms)}.`));
  for (const reason of verdict.reasons) {
    const { before, numbers, after } = compared(reason);
    parts.push(make('p', '', `${before} `, make('span', 'number', numbers), after ? ` ${after}` : ''));
  }
  if (verdict.outcome === 'not_due' && verdict.due_at_ms !== undefined) {
    parts.push(make('p', 'hint', `Due by time alone in ${duration(verdict.due_at_ms - at_ms)}, ${moment(verdict.due_at_ms)}.`));
  }
  return parts;
}

function grid(titles: string[], lines: HTMLElement[], className: string): HTMLTableElement {
  const head = titles.map((title) => {
    const cell = make('th', '', title);
    cell.scope = 'col';
    return cell;
  });
  return make('table', className, make('thead', '', make('tr', '', ...head)), make('tbody', '', ...lines));
}

async function holders(name: string): Promise<HTMLElement> {
  const { holders, rows } = await server.space(name);
  const sum = rows.reduce((all, row) => ({ files: all.files + row.files, bytes: all.bytes + row.bytes }), { files: 0, bytes: 0 });
  const line = ({ who, versions, files, bytes: size }: { who: string; versions: string; files: number; bytes: number }) =>
    make('tr', '', make('td', '', who), make('td', '', versions), make('td', '', count(files)), make('td', '', bytes(size)));
  const lines = [...rows, { who: 'all', versions: '', ...sum }].map(line);
  const { removes, refused } = holders;
  const would = `A cleanup now would give back ${bytes(removes.bytes)} in ${many(removes.files, 'file')}.`;
  return make('div', '', make('p', 'hint', refused ?? would), grid(['Who', 'Versions', 'Files', 'Bytes'], lines, 'space'));
}
