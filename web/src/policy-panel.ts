// The policy's part of the page: its form, A and B, and what leaves the page as a file or a link.

import * as door from './door';
import { download, fault, find, say } from './dom';
import type { Half, View } from './evaluate';
import { KnobForm } from './knobs';
import { groupOf, lines } from './policy';
import { policyHash, record } from './record';
import { Broken, encode } from './share';
import { shown } from './state';
import type { Side, State, Store } from './state';
import { many } from './units';

const page = {
  form: find('policy', HTMLFormElement),
  search: find('knob-search', HTMLInputElement),
  found: find('knob-found', HTMLElement),
  changedOnly: find('changed-only', HTMLInputElement),
  defaults: find('defaults', HTMLButtonElement),
  compare: find('compare', HTMLButtonElement),
  sides: find('sides', HTMLElement),
  settings: find('settings', HTMLElement),
  settingsText: find('settings-text', HTMLElement),
  hash: find('hash', HTMLElement),
  share: find('share', HTMLButtonElement),
  link: find('link', HTMLInputElement),
  linkError: find('link-error', HTMLElement),
  toml: find('toml', HTMLButtonElement),
  record: find('record', HTMLButtonElement),
};

export class PolicyPanel {
  readonly #form: KnobForm;
  readonly #planner: string;
  #view: View | undefined;
  #hash: string | undefined;
  #hashed = '';

  constructor(readonly store: Store, { name, version, knobs }: door.Description) {
    this.#planner = `${name} ${version}`;
    const plain = new Map(knobs.map((knob) => [knob.key, knob.text]));
    this.#form = new KnobForm(page.form, 'knob', knobs, groupOf, (key, text) => store.knob(key, text === plain.get(key) ? undefined : text));
    this.#listen();
  }

  #listen(): void {
    const { store } = this;
    page.form.addEventListener('submit', (event) => event.preventDefault());
    const filter = () => {
      const found = this.#form.filter(page.search.value, page.changedOnly.checked);
      say(page.found, page.search.value || page.changedOnly.checked ? many(found, 'knob') : '');
    };
    page.search.addEventListener('input', filter);
    page.changedOnly.addEventListener('change', filter);
    page.defaults.addEventListener('click', () => store.policy({}));
    page.compare.addEventListener('click', () => {
      const { b, a } = store.state;
      store.update(b ? { b: undefined, side: 'a' } : { b: { ...a }, side: 'b' });
    });
    for (const side of ['a', 'b'] as Side[]) {
      find(`side-${side}`, HTMLInputElement).addEventListener('change', () => store.update({ side }));
    }
    page.toml.addEventListener('click', () => {
      const policy = this.#half()?.policy;
      if (policy) download('caretaker.toml', 'application/toml', policy.toml);
    });
    page.record.addEventListener('click', () => this.#download());
    page.share.addEventListener('click', () => void this.#share());
    page.link.addEventListener('focus', () => page.link.select());
  }

  #half(): Half | undefined {
    return this.store.state.side === 'b' ? this.#view?.b : this.#view?.a;
  }

  #download(): void {
    const { policy, answer } = this.#half() ?? {};
    const facts = this.#view?.facts;
    if (!policy || !answer || !facts) return;
    download(`decision-${answer.plan.at_ms}.json`, 'application/json', record(this.store.state, facts, policy, answer, this.#planner, this.#hash));
  }

  async #share(): Promise<void> {
    try {
      const link = new URL(location.href);
      // A table of this server is in the link by its facts; whoever opens it may reach no server.
      link.search = '';
      link.hash = await encode(this.store.state);
      history.replaceState(null, '', link);
      page.link.value = link.href;
      page.link.hidden = false;
      fault(page.link, page.linkError, '');
      page.link.focus();
      await navigator.clipboard?.writeText(link.href).then(() => say(page.share, 'Copied'), () => undefined);
    } catch (error) {
      if (!(error instanceof Broken)) throw error;
      fault(page.link, page.linkError, error.message);
    }
  }

  show(state: State, view: View): void {
    this.#view = view;
    const set = shown(state);
    const half = this.#half();
    this.#form.show({ set, refused: half?.refused ?? {}, notes: half?.policy?.lint ?? [] });
    page.defaults.disabled = Object.keys(set).length === 0;
    say(page.compare, state.b ? 'Stop comparing' : 'Compare with a second policy');
    page.sides.hidden = state.b === undefined;
    find(`side-${state.side}`, HTMLInputElement).checked = true;
    const text = half?.policy ? lines(set) : '';
    say(page.settingsText, text);
    page.settings.hidden = text === '';
    page.toml.disabled = !half?.policy;
    page.record.disabled = !half?.answer;
    say(page.share, 'Share as a link');
    page.link.hidden = true;
    void this.#showHash(half?.policy);
  }

  async #showHash(policy: door.CheckedPolicy | undefined): Promise<void> {
    if (!policy || policy.canonical === this.#hashed) return;
    this.#hashed = policy.canonical;
    const hash = await policyHash(this.#planner, policy);
    if (policy.canonical !== this.#hashed) return;
    this.#hash = hash;
    say(page.hash, hash ?? 'needs https, or a page from this machine');
  }
}
