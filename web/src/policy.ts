// The form of knobs, generated from the planner's own list.

import * as door from './door';
import { make } from './dom';

interface Field {
  knob: door.Knob;
  input: HTMLInputElement;
  box: HTMLElement;
  standard: HTMLElement;
  error: HTMLElement;
}

export class PolicyForm {
  readonly #fields: Field[];

  constructor(form: HTMLElement, knobs: door.Knob[], changed: () => void) {
    this.#fields = knobs.map((knob) => field(knob, changed));
    form.replaceChildren(...this.#fields.map(({ box }) => box));
  }

  /** The knobs that differ from their default, as written. */
  changes(): Record<string, string> {
    const changed = this.#fields.filter(({ knob, input }) => input.value !== knob.text);
    return Object.fromEntries(changed.map(({ knob, input }) => [knob.key, input.value]));
  }

  reset(): void {
    for (const { knob, input } of this.#fields) input.value = knob.text;
  }

  /** The policy as it stands, or nothing when a value is refused; each field says what is wrong. */
  read(): door.Policy | undefined {
    const refused = this.#fields.filter((field) => !accept(field));
    if (refused.length > 0) return undefined;
    const { policy, lint } = door.policy(this.changes());
    for (const { key, why } of lint) {
      const odd = this.#fields.find(({ knob }) => knob.key === key);
      if (odd) odd.error.textContent = `Note: ${why}`;
    }
    return policy;
  }
}

/** Asks the planner about one field alone, so that the message stands where the mistake is. */
function accept({ knob, input, box, standard, error }: Field): boolean {
  const changed = input.value !== knob.text;
  box.classList.toggle('changed', changed);
  standard.textContent = changed ? `Default: ${knob.text}` : '';
  error.textContent = '';
  let ok = true;
  try {
    door.policy({ [knob.key]: input.value });
  } catch (refused) {
    if (!(refused instanceof door.Refused)) throw refused;
    error.textContent = refused.message;
    ok = false;
  }
  input.setAttribute('aria-invalid', String(!ok));
  error.className = ok ? 'note' : 'error';
  return ok;
}

function field(knob: door.Knob, changed: () => void): Field {
  const input = make('input');
  input.id = `knob-${knob.key}`;
  input.value = knob.text;
  input.autocomplete = 'off';
  input.spellcheck = false;
  // A long key may break after an underscore, and nowhere else.
  const words = knob.key.split(/(?<=_)/);
  const label = make('label', '', ...words.flatMap((word) => [word, make('wbr')]));
  label.htmlFor = input.id;
  const standard = make('p', 'default');
  const help = make('p', 'help', knob.help, knob.zero ? ` 0: ${knob.zero}.` : '');
  const error = make('p', 'note');
  const notes = Object.entries({ standard, help, error });
  for (const [name, note] of notes) note.id = `${input.id}-${name}`;
  input.setAttribute('aria-describedby', notes.map(([, note]) => note.id).join(' '));
  input.addEventListener('input', changed);
  const box = make('div', 'knob', label, input, standard, help, error);
  return { knob, input, box, standard, error };
}
