// The fleet, live: events of the server go into the state, and the state onto the page.

import { button, find, make, say, swap } from '../dom';
import { count, duration } from '../units';
import { Detail } from './detail';
import * as server from './server';
import type { Decided, Fleet, Job } from './server';
import { showDecisions, showJobs, showMembers, showNumbers } from './side';
import { Tables, ago, counted } from './tables';
import { WORDS } from './words';

/** The server says something at least this often; a little more is a bad sign. */
const SILENT_MS = 25_000;
const SECOND = 1_000;
const DECISIONS_MAX = 100;

const page = {
  live: find('live', HTMLElement),
  notice: find('notice', HTMLElement),
  said: find('said', HTMLElement),
  root: find('root', HTMLElement),
  numbers: find('numbers', HTMLElement),
  find: find('find', HTMLInputElement),
  words: find('words', HTMLElement),
  shown: find('shown', HTMLElement),
  jobs: find('jobs', HTMLElement),
  decisions: find('decisions', HTMLElement),
  members: find('members', HTMLElement),
  dialog: find('ask', HTMLDialogElement),
  form: find('ask-form', HTMLFormElement),
  key: find('ask-key', HTMLInputElement),
};

let fleet: Fleet | undefined;
let jobs: Job[] = [];
let decisions: Decided[] = [];
let only = '';
/** When the last event came, and by how much the server's clock is ahead of this device's. */
let heard: { at: number; ahead: number } | undefined;
let stop = () => {};

const tables = new Tables(find('tables', HTMLElement), new Detail(act));

/** The server's clock, as far as it is known. */
const now = () => Date.now() + (heard?.ahead ?? 0);

function seen(next: Fleet, first: boolean): void {
  heard = { at: Date.now(), ahead: next.at_ms - Date.now() };
  if (first) {
    tables.clear();
    decisions = [];
    notice('');
  }
  fleet = next;
  jobs = next.jobs ?? jobs;
  decisions = [...next.decisions, ...decisions].slice(0, DECISIONS_MAX);
  tables.take(next.tables, next.gone, next.at_ms);
  say(page.root, next.root);
  showNumbers(page.numbers, next, jobs);
  showWords(next);
  showJobs(page.jobs, jobs, next.at_ms, act);
  showDecisions(page.decisions, decisions, next.at_ms);
  showMembers(page.members, next.members, next.agent.name);
  document.title = `Caretaker fleet: ${next.root}`;
  clock();
}

function lost(error: unknown, again: number): void {
  const refused = error instanceof server.Refused ? error : undefined;
  if (refused?.status === 401 || refused?.status === 403) {
    notice(`${refused.message}.`);
    if (!page.dialog.open) page.dialog.showModal();
  } else if (refused) {
    notice(`The server refuses: ${refused.message}. Next try in ${duration(again)}.`);
  } else {
    notice(heard ? '' : `No answer from ${location.host}. Next try in ${duration(again)}.`);
  }
  clock(true);
}

/** How fresh all this is. */
function clock(cut = false): void {
  if (!heard) return live(cut ? 'bad' : 'wait', cut ? 'No connection' : 'Connecting…');
  const age = Date.now() - heard.at;
  if (cut || age > SILENT_MS) return live('bad', `No answer: all of this is ${duration(age - (age % SECOND))} old`);
  if (fleet?.away) return live('bad', 'The registry does not answer: nothing is evaluated');
  if (fleet?.draining) return live('wait', 'Draining');
  live('on', 'Live');
}

function live(tone: string, text: string): void {
  page.live.className = `pill ${tone}`;
  say(page.live, text);
  document.body.classList.toggle('old', tone === 'bad');
}

function notice(text: string): void {
  say(page.notice, text);
  page.notice.hidden = text === '';
}

function showWords({ words, tables_found, tables_total }: Fleet): void {
  const there = WORDS.filter(({ word }) => (words[word] ?? 0) > 0);
  if (!there.some(({ word }) => word === only)) only = '';
  swap(page.words, ...there.map(({ word, tone, help }) => {
    const chip = button(`${word} ${count(words[word] ?? 0)}`, () => {
      only = only === word ? '' : word;
      if (fleet) showWords(fleet);
    }, { id: `word-${word}`, className: `pill ${tone}` });
    chip.title = help;
    chip.setAttribute('aria-pressed', String(only === word));
    return chip;
  }));
  const shown = tables.only(only);
  say(page.shown, counted(shown, tables_found, tables_total));
}

/** Asks something of the server, and says what became of it. */
function act(what: string, work: () => Promise<void>): void {
  void work().then(
    () => { notice(''); say(page.said, `${what}.`); },
    (error: unknown) => {
      const why = error instanceof Error ? error.message : String(error);
      notice(`${what}: refused. ${why}`);
      const status = error instanceof server.Refused ? error.status : 0;
      if (status === 401 || (status === 403 && server.key() === '')) page.dialog.showModal();
    },
  );
}

function follow(): void {
  stop();
  stop = server.follow(page.find.value.trim(), { seen, lost });
}

function listen(): void {
  let typed: ReturnType<typeof setTimeout> | undefined;
  page.find.addEventListener('input', () => {
    clearTimeout(typed);
    typed = setTimeout(follow, 250);
  });
  find('key', HTMLButtonElement).addEventListener('click', () => page.dialog.showModal());
  page.form.addEventListener('submit', (event) => {
    const forget = event.submitter instanceof HTMLButtonElement && event.submitter.value === 'forget';
    server.remember(forget ? '' : page.key.value.trim());
    page.key.value = '';
    follow();
  });
  document.addEventListener('keydown', (event) => {
    const typing = event.target instanceof HTMLElement && event.target.matches('input, textarea');
    if (event.key !== '/' || typing || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    page.find.focus();
  });
  // A page that was put away has missed things, and its stream may be dead without a sign.
  document.addEventListener('visibilitychange', () => {
    if (!document.hidden && heard && Date.now() - heard.at > SILENT_MS) follow();
  });
  setInterval(() => {
    clock(heard !== undefined && Date.now() - heard.at > SILENT_MS);
    for (const at of document.querySelectorAll<HTMLElement>('[data-at]')) say(at, ago(Number(at.dataset.at), now()));
  }, SECOND);
}

swap(page.jobs, make('p', 'hint', 'Waiting for the first answer…'));
listen();
follow();
