// The page: what is typed goes to the planner, what it answers is shown.

import * as door from './door';
import { find, make } from './dom';
import example from './example.json?raw';
import { PolicyForm } from './policy';
import { summary, verdictTable } from './verdicts';

/** The time the example was taken at: 2026-01-15 12:00:00 UTC. */
const EXAMPLE_NOW_MS = 1_768_478_400_000;
const FILE_BYTES_MAX = 32 * 1024 * 1024;

const TRIGGERS: Record<string, string> = {
  tick: 'the periodic walk',
  relief: 'write back-pressure',
  forced: 'an operator, by force',
};

const page = {
  main: find('main', HTMLElement),
  summary: find('summary', HTMLElement),
  problem: find('problem', HTMLElement),
  verdicts: find('verdicts', HTMLElement),
  drawing: find('drawing', HTMLElement),
  drawingSection: find('drawing-section', HTMLElement),
  now: find('now', HTMLInputElement),
  trigger: find('trigger', HTMLSelectElement),
  facts: find('facts', HTMLTextAreaElement),
  factsError: find('facts-error', HTMLElement),
  nowError: find('now-error', HTMLElement),
  file: find('file', HTMLInputElement),
  defaults: find('defaults', HTMLButtonElement),
  settings: find('settings', HTMLElement),
  settingsText: find('settings-text', HTMLElement),
};

/** Text only when it changes, so that a screen reader does not repeat itself. */
function say(element: HTMLElement, text: string): void {
  if (element.textContent !== text) element.textContent = text;
}

/** A message at the field it is about; an empty one clears it. */
function fault(field: HTMLElement, error: HTMLElement, message: string): void {
  field.setAttribute('aria-invalid', String(message !== ''));
  say(error, message);
  error.hidden = message === '';
}

/** The moment in the field, read as UTC. */
function nowMs(): number | undefined {
  const ms = Date.parse(`${page.now.value}Z`);
  const known = Number.isFinite(ms) && ms >= 0;
  fault(page.now, page.nowError, known ? '' : 'a date and a time from 1970 on are needed');
  return known ? ms : undefined;
}

function setNow(ms: number): void {
  const latest = Date.UTC(9999, 11, 31);
  page.now.value = new Date(Math.min(Math.max(ms, 0), latest)).toISOString().slice(0, 19);
}

/** The facts as they were typed, once they are JSON at all. */
function facts(): door.Json | undefined {
  const text = page.facts.value.trim();
  try {
    JSON.parse(text);
    fault(page.facts, page.factsError, '');
    return new door.Json(text);
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    fault(page.facts, page.factsError, text === '' ? '' : `not JSON: ${why}`);
    return undefined;
  }
}

/** Asks about everything typed. A field in the middle of being typed is often wrong for a moment:
 * the last verdicts then stay, marked as out of date, so that the page does not jump. */
function evaluate(form: PolicyForm): void {
  const changes = form.changes();
  page.defaults.disabled = Object.keys(changes).length === 0;
  const [policy, now, known] = [form.read(), nowMs(), facts()];
  showSettings(policy ? changes : {});
  const answer = known && ask(known, policy ?? {}, now ?? 0);
  if (answer && policy && now !== undefined) {
    show(answer, form);
  } else if (page.facts.value.trim() === '') {
    clear('No facts yet: paste, open or drop a facts.json, or take the example.');
  } else {
    say(page.summary, 'A field has a problem, shown beside it.');
    page.main.classList.add('stale');
  }
}

/** The planner's answer, or nothing when it refuses the facts; then they say why. */
function ask(facts: door.Json, policy: door.Policy, now_ms: number): door.Answer | undefined {
  try {
    return door.plan(facts, policy, now_ms, page.trigger.value);
  } catch (refused) {
    if (!(refused instanceof door.Refused)) throw refused;
    fault(page.facts, page.factsError, refused.message);
    return undefined;
  }
}

function show({ plan, drawing }: door.Answer, form: PolicyForm): void {
  const go = (ms: number) => {
    setNow(roundUp(ms));
    evaluate(form);
    page.now.focus();
  };
  say(page.summary, summary(plan));
  page.verdicts.replaceChildren(verdictTable(plan, go));
  say(page.drawing, `${drawing.facts ?? ''}${drawing.plan ?? ''}`);
  page.drawingSection.hidden = false;
  page.main.classList.remove('stale');
}

function clear(why: string): void {
  say(page.summary, why);
  page.verdicts.replaceChildren(make('p', 'hint', 'Nothing to show.'));
  page.drawingSection.hidden = true;
  page.main.classList.remove('stale');
}

/** The field holds whole seconds: a moment too late is due, a moment too early is not. */
function roundUp(ms: number): number {
  return Math.ceil(ms / 1000) * 1000;
}

function showSettings(changes: Record<string, string>): void {
  const lines = Object.entries(changes).map(([key, text]) => `${key} = ${/^\d+$/.test(text) ? text : JSON.stringify(text)}`);
  say(page.settingsText, lines.join('\n'));
  page.settings.hidden = lines.length === 0;
}

async function take(file: File | undefined, update: () => void): Promise<void> {
  if (!file) return;
  if (file.size > FILE_BYTES_MAX) {
    fault(page.facts, page.factsError, `\`${file.name}\` is larger than 32 MiB`);
    return;
  }
  page.facts.value = await file.text();
  update();
}

function listen(form: PolicyForm): void {
  const update = () => evaluate(form);
  for (const input of [page.now, page.facts, page.trigger]) input.addEventListener('input', update);
  page.file.addEventListener('change', () => void take(page.file.files?.[0], update));
  page.defaults.addEventListener('click', () => { form.reset(); update(); });
  find('clock', HTMLButtonElement).addEventListener('click', () => { setNow(Date.now()); update(); });
  find('example', HTMLButtonElement).addEventListener('click', () => { showExample(); update(); });
  for (const button of document.querySelectorAll<HTMLButtonElement>('[data-move]')) {
    button.addEventListener('click', () => { setNow((nowMs() ?? EXAMPLE_NOW_MS) + Number(button.dataset.move)); update(); });
  }
  document.addEventListener('dragover', (event) => { event.preventDefault(); page.facts.classList.add('dropping'); });
  document.addEventListener('dragleave', () => page.facts.classList.remove('dropping'));
  document.addEventListener('drop', (event) => {
    event.preventDefault();
    page.facts.classList.remove('dropping');
    void take(event.dataTransfer?.files[0], update);
  });
}

function showExample(): void {
  page.facts.value = example;
  setNow(EXAMPLE_NOW_MS);
}

async function start(): Promise<void> {
  await door.open();
  const { knobs, triggers } = door.describe();
  page.trigger.replaceChildren(...triggers.map((name) => new Option(TRIGGERS[name] ?? name, name)));
  const form: PolicyForm = new PolicyForm(find('policy', HTMLElement), knobs, () => evaluate(form));
  find('policy', HTMLFormElement).addEventListener('submit', (event) => event.preventDefault());
  showExample();
  listen(form);
  evaluate(form);
}

start().catch((error: unknown) => {
  say(page.summary, '');
  page.problem.hidden = false;
  say(page.problem, `The planner could not be loaded: ${error instanceof Error ? error.message : String(error)}. Serve this folder with a web server and open it in a current browser.`);
});
