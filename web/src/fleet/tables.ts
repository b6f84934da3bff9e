// The list of tables: the worst first, each opening to what is due and why, and what can be done.

import { button, make, say, swap } from '../dom';
import { bytes, count, duration, many, moment } from '../units';
import { type Detail } from './detail';
import type { Table } from './server';
import { rank, tone } from './words';

const COLUMNS = ['Table', 'State', 'What waits', 'Not folded', 'Base', 'Evaluated'];

/** The list keeps its elements: a table that did not change is not drawn anew. */
export class Tables {
  private readonly rows = new Map<string, { table: Table; body: HTMLTableSectionElement }>();
  private readonly element: HTMLTableElement;
  private now = 0;

  constructor(
    private readonly parent: HTMLElement,
    private readonly detail: Detail,
  ) {
    const head = COLUMNS.map((title) => {
      const cell = make('th', '', title);
      cell.scope = 'col';
      return cell;
    });
    this.element = make('table', 'tables', make('thead', '', make('tr', '', ...head)));
  }

  clear(): void {
    this.rows.clear();
    this.element.querySelectorAll('tbody').forEach((body) => body.remove());
  }

  /** Takes in what has changed. */
  take(tables: Table[], gone: string[], now: number): void {
    this.now = now;
    for (const name of gone) {
      this.rows.get(name)?.body.remove();
      this.rows.delete(name);
    }
    for (const table of tables) {
      const known = this.rows.get(table.table);
      const body = known?.body ?? make('tbody');
      this.rows.set(table.table, { table, body });
      this.draw(table, body);
    }
    this.order();
    for (const cell of this.element.querySelectorAll<HTMLElement>('[data-at]')) say(cell, ago(Number(cell.dataset.at), now));
  }

  /** Shows only tables of this state; an empty word: all. */
  only(word: string): number {
    let shown = 0;
    for (const { table, body } of this.rows.values()) {
      body.hidden = word !== '' && table.word !== word;
      shown += body.hidden ? 0 : 1;
    }
    return shown;
  }

  get size(): number {
    return this.rows.size;
  }

  private order(): void {
    if (this.rows.size === 0) {
      swap(this.parent, make('p', 'hint', 'No tables. A table is a folder `<name>.lance` under the root.'));
      return;
    }
    const sorted = [...this.rows.values()].sort(
      (a, b) => rank(a.table.word) - rank(b.table.word) || (a.table.table < b.table.table ? -1 : 1),
    );
    const bodies = [...this.element.tBodies];
    // A row that is being used must not lose the focus for nothing.
    if (sorted.some(({ body }, at) => bodies[at] !== body) || bodies.length !== sorted.length) {
      const focused = document.activeElement instanceof HTMLElement ? document.activeElement : undefined;
      this.element.append(...sorted.map(({ body }) => body));
      if (focused?.isConnected) focused.focus({ preventScroll: true });
    }
    if (this.element.parentElement !== this.parent) this.parent.replaceChildren(this.element);
  }

  private draw(table: Table, body: HTMLTableSectionElement): void {
    const open = this.detail.isOpen(table.table);
    const focused = body.contains(document.activeElement) ? document.activeElement?.id : undefined;
    const name = button(table.table, () => {
      this.detail.toggle(table.table);
      this.draw(this.rows.get(table.table)?.table ?? table, body);
    }, { id: `table-${table.table}`, className: 'name' });
    name.setAttribute('aria-expanded', String(open));
    const head = make('th', '', name);
    head.scope = 'row';
    const row = make('tr', '', head, ...cells(table, this.now));
    swap(body, row, ...(open ? [this.detail.row(table, COLUMNS.length)] : []));
    if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
  }
}

function cells(table: Table, now: number): HTMLElement[] {
  const { seen } = table;
  const badge = make('span', `pill ${tone(table.word)}`, table.word);
  const waits = make('td', 'waits');
  if (table.failing) waits.append(make('span', 'why-bad', `${table.failing.why} (${many(table.failing.times, 'time')}, again ${moment(table.failing.retry_at_ms)})`));
  else if (table.owner) waits.append(make('span', 'soft', table.owner));
  else if (seen) waits.append(seen.work === '' ? make('span', 'soft', 'nothing') : seen.work);
  const unfolded = make('td', 'figure');
  if (seen && seen.shards > 0) {
    unfolded.append(seen.unfolded === 0 ? '0' : many(seen.unfolded, 'SSTable'));
    const oldest = seen.oldest_unfolded_at_ms === null ? '' : `, oldest ${spent(now - seen.oldest_unfolded_at_ms)}`;
    unfolded.append(make('small', '', `${bytes(seen.sstable_bytes)} listed${oldest}`));
  } else {
    unfolded.append(make('span', 'soft', seen ? 'no shards' : '–'));
  }
  const base = make('td', 'figure');
  if (seen) {
    base.append(seen.base_bytes === null ? 'size unmeasured' : bytes(seen.base_bytes));
    const rows = seen.rows === null ? 'rows uncounted' : many(seen.rows, 'row');
    base.append(make('small', '', `${rows}, ${seen.fragments === null ? '? fragments' : many(seen.fragments, 'fragment')}`));
  } else {
    base.append(make('span', 'soft', '–'));
  }
  const when = make('td', 'figure');
  if (table.evaluated_at_ms !== undefined) {
    const at = make('span', '', ago(table.evaluated_at_ms, now));
    at.dataset.at = String(table.evaluated_at_ms);
    at.title = moment(table.evaluated_at_ms);
    when.append(at);
  } else {
    when.append(make('span', 'soft', 'never'));
  }
  const cells = [make('td', '', badge), waits, unfolded, base, when];
  // Where rows are laid out as cards each value carries its column's name.
  cells.forEach((cell, at) => { cell.dataset.column = COLUMNS[at + 1]; });
  return cells;
}

export function ago(at: number, now: number): string {
  return now - at < 1_000 ? 'just now' : `${spent(now - at)} ago`;
}

/** A time in whole seconds. */
export function spent(ms: number): string {
  return duration(Math.max(0, Math.floor(ms / 1_000) * 1_000));
}

/** How many tables there are, in words. */
export function counted(shown: number, found: number, total: number): string {
  const of = found === total ? many(total, 'table') : `${count(found)} found of ${count(total)}`;
  return shown === found ? `${of}` : `${count(shown)} shown of ${of}`;
}
