// A form of knobs, made from the planner's own list. It holds no value of its own: what is typed goes
// to the state, and what the state says is shown.

import type { Changes, Knob } from './door';
import { breakable, make, say } from './dom';
import { bytes, count, duration } from './units';

interface Field {
  knob: Knob;
  group: string;
  input: HTMLInputElement;
  box: HTMLElement;
  standard: HTMLElement;
  error: HTMLElement;
}

export interface Values {
  set: Changes;
  /** What a knob has without being set, where that is not its default. */
  standard?: Changes;
  refused: Record<string, string>;
  notes: { key: string; why: string }[];
}

export class KnobForm {
  readonly #fields: Field[];
  readonly #groups = new Map<string, { details: HTMLDetailsElement; count: HTMLElement }>();
  #search = '';
  #changedOnly = false;
  #set: Changes = {};

  constructor(
    form: HTMLElement,
    prefix: string,
    knobs: Knob[],
    groupOf: (key: string) => string,
    readonly change: (key: string, text: string | undefined) => void,
  ) {
    this.#fields = knobs.map((knob) => this.#field(prefix, knob, groupOf(knob.key)));
    for (const [name, fields] of Map.groupBy(this.#fields, ({ group }) => group)) {
      const number = make('span', 'count');
      const details = make('details', 'knobs', make('summary', '', make('span', '', name), number), ...fields.map(({ box }) => box));
      details.id = `${prefix}-group-${this.#groups.size}`;
      details.open = this.#groups.size === 0;
      this.#groups.set(name, { details, count: number });
    }
    form.replaceChildren(...[...this.#groups.values()].map(({ details }) => details));
  }

  show({ set, standard = {}, refused, notes }: Values): void {
    this.#set = set;
    for (const field of this.#fields) {
      const { knob, input, box, error } = field;
      const plain = standard[knob.key] ?? knob.text;
      const text = set[knob.key] ?? plain;
      if (input.value !== text) input.value = text;
      const changed = knob.key in set;
      box.classList.toggle('changed', changed);
      say(field.standard, `${changed ? 'Default' : 'default'} ${plain} · ${range(knob)}`);
      const wrong = refused[knob.key];
      const remarks = notes.filter(({ key }) => key === knob.key).map(({ why }) => `Note: ${why}`);
      say(error, wrong ?? remarks.join(' '));
      error.className = wrong ? 'error' : 'note';
      input.setAttribute('aria-invalid', String(wrong !== undefined));
    }
    for (const [name, { details, count: number }] of this.#groups) {
      const mine = this.#fields.filter(({ group }) => group === name);
      const changed = mine.filter(({ knob }) => knob.key in set).length;
      const noted = mine.filter(({ error }) => error.textContent !== '').length;
      say(number, [changed && `${changed} changed`, noted && `${noted} noted`].filter(Boolean).join(', ') || `${mine.length}`);
      number.classList.toggle('some', changed + noted > 0);
      // What is wrong must be seen.
      if (noted > 0) details.open = true;
    }
    if (this.#changedOnly) this.filter(this.#search, true);
  }

  /** Shows the knobs that a word is in; returns how many. */
  filter(search: string, changedOnly: boolean): number {
    [this.#search, this.#changedOnly] = [search, changedOnly];
    const words = search.toLowerCase().split(/\s+/).filter(Boolean);
    let found = 0;
    for (const { knob, box } of this.#fields) {
      const text = `${knob.key} ${knob.key.replaceAll('_', ' ')} ${knob.help}`.toLowerCase();
      const shown = words.every((word) => text.includes(word)) && (!changedOnly || knob.key in this.#set);
      box.hidden = !shown;
      found += Number(shown);
    }
    for (const { details } of this.#groups.values()) {
      details.hidden = !details.querySelector('.knob:not([hidden])');
      if (words.length > 0 || changedOnly) details.open = true;
    }
    return found;
  }

  #field(prefix: string, knob: Knob, group: string): Field {
    const input = make('input');
    input.id = `${prefix}-${knob.key}`;
    input.autocomplete = 'off';
    input.spellcheck = false;
    const label = make('label', '', ...breakable(knob.key));
    label.htmlFor = input.id;
    const standard = make('p', 'default');
    const help = make('p', 'help', knob.help, knob.zero ? ` 0: ${knob.zero}.` : '');
    const error = make('p', 'note');
    const notes = Object.entries({ standard, help, error });
    for (const [name, note] of notes) note.id = `${input.id}-${name}`;
    input.setAttribute('aria-describedby', notes.map(([, note]) => note.id).join(' '));
    const box = make('div', 'knob', label, input, error, standard, help);
    const field = { knob, group, input, box, standard, error };
    input.addEventListener('input', () => this.change(knob.key, input.value));
    return field;
  }
}

/** What a knob may be, with its unit. */
function range({ unit, min, max }: Knob): string {
  const show = { count, bytes, seconds: (value: number) => duration(value * 1000) }[unit];
  return `${show(min)} to ${show(max)}`;
}
