// Beside the tables: jobs, recent decisions, agents and workers, and the fleet in numbers.

import { button, make, swap } from '../dom';
import { bytes, count, duration, many, moment } from '../units';
import type { Act } from './detail';
import { cancel } from './server';
import type { Decided, Fleet, Job, Member } from './server';
import { ago, spent } from './tables';

/** Decisions and ended jobs that are shown. */
const SHOWN_MAX = 40;

const STATES: Record<Job['state'], string> = {
  pending: 'waits',
  running: 'runs',
  paused: 'paused',
  succeeded: 'done',
  failed: 'failed',
  cancelled: 'cancelled',
};

const TONES: Record<Job['state'], string> = {
  pending: 'wait',
  running: 'on',
  paused: 'off',
  succeeded: 'calm',
  failed: 'bad',
  cancelled: 'off',
};

export function showJobs(parent: HTMLElement, jobs: Job[], now: number, act: Act): void {
  const open = jobs.filter((job) => job.ended_ms === null);
  const ended = jobs.filter((job) => job.ended_ms !== null).slice(0, SHOWN_MAX);
  if (jobs.length === 0) {
    swap(parent, make('p', 'hint', 'No job yet.'));
    return;
  }
  const list = make('ul', 'jobs', ...[...open, ...ended].map((job) => item(job, now, act)));
  swap(parent, list);
}

function item(job: Job, now: number, act: Act): HTMLElement {
  const lost = job.lease_expired;
  const word = lost ? 'lease expired' : job.ask === 'cancel' ? 'stopping' : outcome(job);
  const pill = make('span', `pill ${lost ? 'bad' : TONES[job.state]}`, word);
  const head = make('p', 'job-head', make('strong', '', job.kind), ' ', pill);
  const lines: HTMLElement[] = [make('p', 'hint', `${job.table}${job.shard ? ` · shard ${job.shard}` : ''}`)];
  if (job.state === 'running') {
    const since = job.started_ms === null ? '' : `for ${spent(now - job.started_ms)}`;
    lines.push(make('p', 'hint', [job.stage ?? 'begins', since, job.worker ? `by ${job.worker}` : ''].filter(Boolean).join(' · ')));
    if (job.rows_total > 0) {
      const bar = make('progress');
      [bar.max, bar.value] = [job.rows_total, Math.min(job.rows_done, job.rows_total)];
      bar.setAttribute('aria-label', `${count(job.rows_done)} of ${many(job.rows_total, 'row')}`);
      lines.push(bar);
    }
  } else if (job.ended_ms !== null) {
    const took = job.started_ms === null ? '' : ` · took ${duration(job.ended_ms - job.started_ms)}`;
    const at = make('p', 'hint', `${ago(job.ended_ms, now)}${took}`);
    at.title = moment(job.ended_ms);
    lines.push(at);
  } else {
    lines.push(make('p', 'hint', `waits ${spent(now - job.created_ms)}${job.attempt > 0 ? ` · attempt ${job.attempt + 1}` : ''}`));
  }
  if (job.why) lines.push(make('p', 'why-bad', job.why));
  if (job.ended_ms === null && job.ask !== 'cancel') {
    const stop = () => act(`Asked to cancel ${job.kind} of \`${job.table}\``, () => cancel(job.id));
    head.append(' ', button('Cancel', stop, { label: `Cancel ${job.kind} of ${job.table}`, id: `cancel-${job.id}`, className: 'small' }));
  }
  return make('li', '', head, ...lines);
}

function outcome(job: Job): string {
  const told = job.outcome === 'superseded' || job.outcome === 'lost' ? job.outcome : STATES[job.state];
  return told;
}

export function showDecisions(parent: HTMLElement, decisions: Decided[], now: number): void {
  if (decisions.length === 0) {
    swap(parent, make('p', 'hint', 'None yet: nothing became due or held since this agent began.'));
    return;
  }
  const items = decisions.slice(0, SHOWN_MAX).map(({ at_ms, table, lines, policy }) => {
    const at = make('span', 'hint', ago(at_ms, now));
    at.title = `${moment(at_ms)}, policy ${policy}`;
    const said = lines.length > 0 ? make('pre', 'lines', lines.join('\n')) : make('p', 'hint', 'Nothing is due or held any more.');
    said.tabIndex = lines.length > 0 ? 0 : -1;
    return make('li', '', make('p', 'job-head', make('strong', '', table), ' ', at), said);
  });
  swap(parent, make('ul', 'jobs', ...items));
}

export function showMembers(parent: HTMLElement, members: Member[], me: string): void {
  const items = members.map(({ name, role, host, pid, version, root }) =>
    make('li', '', make('p', 'job-head', make('strong', '', name), name === me ? ' (this one)' : ''),
      make('p', 'hint', `${role} on ${host}, process ${pid}, version ${version}${root ? ` · ${root}` : ''}`)));
  swap(parent, items.length > 0 ? make('ul', 'jobs', ...items) : make('p', 'hint', 'The registry does not answer.'));
}

export function showNumbers(parent: HTMLElement, fleet: Fleet, jobs: Job[]): void {
  const { coverage } = fleet;
  const target = coverage['lance_agent_coverage_cycle_target'] ?? 0;
  const pending = coverage['lance_agent_coverage_cycle_pending'] ?? 0;
  const oldest = (coverage['lance_agent_coverage_oldest_success_age_seconds'] ?? 0) * 1_000;
  const running = jobs.filter((job) => job.state === 'running').length;
  const waiting = jobs.filter((job) => job.ended_ms === null).length - running;
  const bad = (fleet.words['failed'] ?? 0) + (fleet.words['lease expired'] ?? 0);
  const numbers: [string, string, string][] = [
    ['Tables', count(fleet.tables_total), bad > 0 ? `${count(bad)} in trouble` : 'none in trouble'],
    ['Jobs', count(running), `run, ${count(waiting)} wait`],
    ['Evaluated', `${count(target - pending)} of ${count(target)}`, `this cycle; oldest look ${duration(oldest)} ago`],
    ['Rows in memory', bytes(fleet.memory_bytes), fleet.draining ? 'drained: takes no writes' : 'not flushed yet'],
    ['Decides', fleet.planner, `every table at least each ${duration(fleet.sweep_ms)}`],
  ];
  swap(parent, ...numbers.map(([name, value, more]) =>
    make('div', 'number-card', make('span', 'hint', name), make('strong', '', value), make('span', 'hint', more))));
}
