// Where the facts come from: the example, a file, what was typed, or the server that serves this page.

import { fault, find, make, say, swap } from './dom';
import type { View } from './evaluate';
import { opened } from './record';
import { EXAMPLE, EXAMPLE_NOW_MS, FACTS_BYTES_MAX } from './state';
import type { State, Store } from './state';
import { count, many, zone } from './units';

const page = {
  facts: find('facts', HTMLTextAreaElement),
  factsError: find('facts-error', HTMLElement),
  editor: find('facts-editor', HTMLDetailsElement),
  file: find('file', HTMLInputElement),
  drop: find('drop', HTMLElement),
  chips: find('chips', HTMLElement),
  source: find('source', HTMLElement),
  again: find('again', HTMLButtonElement),
  now: find('now', HTMLInputElement),
  nowLabel: find('now-label', HTMLElement),
  nowError: find('now-error', HTMLElement),
  trigger: find('trigger', HTMLSelectElement),
};

const TRIGGERS: Record<string, string> = {
  tick: 'the periodic walk',
  relief: 'write back-pressure',
  forced: 'an operator, by force',
};

export class TablePanel {
  /** The table that `?table=` names, on the server of this page. */
  readonly #connected = new URLSearchParams(location.search).get('table') ?? '';

  constructor(readonly store: Store, triggers: string[]) {
    page.trigger.replaceChildren(...triggers.map((name) => new Option(TRIGGERS[name] ?? name, name)));
    say(page.nowLabel, `Now (${zone()})`);
    this.#listen();
    page.again.hidden = this.#connected === '';
    page.again.addEventListener('click', () => void this.connect());
  }

  #listen(): void {
    const { store } = this;
    page.facts.addEventListener('input', () => store.update({ facts: page.facts.value, source: { from: 'typed' } }));
    page.now.addEventListener('input', () => store.update({ now_ms: Date.parse(page.now.value) }));
    page.trigger.addEventListener('input', () => store.update({ trigger: page.trigger.value }));
    page.file.addEventListener('change', () => void this.#take(page.file.files?.[0]));
    find('open', HTMLButtonElement).addEventListener('click', () => page.file.click());
    find('clock', HTMLButtonElement).addEventListener('click', () => store.update({ now_ms: Date.now() }));
    find('example', HTMLButtonElement).addEventListener('click', () => store.update({ facts: EXAMPLE, source: { from: 'example' }, now_ms: EXAMPLE_NOW_MS }));
    for (const move of document.querySelectorAll<HTMLButtonElement>('[data-move]')) {
      move.addEventListener('click', () => {
        const { now_ms } = store.state;
        store.update({ now_ms: Math.max(0, (Number.isFinite(now_ms) ? now_ms : EXAMPLE_NOW_MS) + Number(move.dataset.move)) });
      });
    }
    document.addEventListener('dragover', (event) => { event.preventDefault(); page.drop.classList.add('dropping'); });
    document.addEventListener('dragleave', () => page.drop.classList.remove('dropping'));
    document.addEventListener('drop', (event) => {
      event.preventDefault();
      page.drop.classList.remove('dropping');
      void this.#take(event.dataTransfer?.files[0]);
    });
  }

  show(state: State, view: View): void {
    if (page.facts.value !== state.facts) page.facts.value = state.facts;
    fault(page.facts, page.factsError, view.factsError);
    if (view.factsError) page.editor.open = true;
    if (document.activeElement !== page.now && Number.isFinite(state.now_ms)) page.now.value = local(state.now_ms);
    fault(page.now, page.nowError, view.nowError);
    page.trigger.value = state.trigger;
    say(page.source, sourceOf(state));
    swap(page.chips, ...(view.facts ? chips(view.facts.text) : []));
  }

  /** Reads the facts of the table that the address names, from the page's own server. */
  async connect(): Promise<void> {
    const name = this.#connected;
    if (name === '') return;
    const address = `/v1/table/${encodeURIComponent(name)}/facts`;
    try {
      const answer = await fetch(address, { headers: { accept: 'application/json', ...keyed() } });
      const text = await answer.text();
      if (!answer.ok) throw new Error(`it answered ${answer.status} ${answer.statusText}`.trim());
      this.store.update({ facts: text, source: { from: 'table', name }, now_ms: Date.now() });
    } catch (error) {
      const why = error instanceof Error ? error.message : String(error);
      page.again.hidden = false;
      this.store.update({ facts: '', source: { from: 'typed' } });
      fault(page.facts, page.factsError, `\`${address}\` could not be read: ${why}`);
      page.editor.open = true;
    }
  }

  async #take(file: File | undefined): Promise<void> {
    page.file.value = '';
    if (!file) return;
    if (file.size > FACTS_BYTES_MAX) {
      fault(page.facts, page.factsError, `\`${file.name}\` is larger than 32 MiB`);
      page.editor.open = true;
      return;
    }
    const text = await file.text();
    this.store.update({ facts: text, ...opened(text), source: { from: 'file', name: file.name } });
  }
}

/** Milliseconds as the field takes them, in the reader's zone. Whole seconds: a moment too late is due,
 * a moment too early is not. */
function local(ms: number): string {
  const up = new Date(Math.min(Math.ceil(ms / 1000) * 1000, Date.UTC(9999, 0, 1)));
  const two = (value: number) => String(value).padStart(2, '0');
  const day = `${String(up.getFullYear()).padStart(4, '0')}-${two(up.getMonth() + 1)}-${two(up.getDate())}`;
  return `${day}T${two(up.getHours())}:${two(up.getMinutes())}:${two(up.getSeconds())}`;
}

function sourceOf({ source, facts }: State): string {
  if (facts.trim() === '') return 'No table yet.';
  switch (source.from) {
    case 'example':
      return 'The example.';
    case 'file':
      return `From the file ${source.name}.`;
    case 'table':
      return `Table ${source.name}, as this server read it.`;
    case 'link':
      return 'From the link that this page was opened with.';
    case 'typed':
      return 'As typed below.';
  }
}

/** What the table is like, at a glance. */
function chips(text: string): HTMLElement[] {
  const known = JSON.parse(text) as Record<string, unknown>;
  if (typeof known !== 'object' || known === null) return [];
  const { table, version, rows, fragments, indexes, shards } = known;
  const number = (value: unknown, one: string, more?: string) => (Array.isArray(value) ? [many(value.length, one, more)] : []);
  const facts = [
    ...(typeof table === 'string' ? [`table ${table}`] : []),
    ...(typeof version === 'number' && Number.isSafeInteger(version) ? [`version ${count(version)}`] : []),
    ...(typeof rows === 'number' ? [many(rows, 'row')] : []),
    ...number(fragments, 'fragment'),
    ...number(indexes, 'index', 'indexes'),
    ...number(shards, 'shard'),
  ];
  return facts.map((fact) => make('li', '', fact));
}

/** The key that the fleet page of the same server was given, in this tab. */
function keyed(): Record<string, string> {
  const key = sessionStorage.getItem('caretaker-key');
  return key ? { 'x-api-key': key } : {};
}
