// The jobs of a simulation: a row each kind, a box each job, from its start to its end.

import type { RanJob, Timeline } from './door';
import { count, duration, many } from './units';
import { capital, compared } from './words';
import type { Colours, Range } from './timeline';

const ROW = 22;
const AXIS = 4;
const NAMED_MAX = 6;

export interface Frame {
  a: Timeline;
  b: Timeline | undefined;
  range: Range;
  mark_ms: number;
  left: number;
  right: number;
}

/** The kinds of jobs, most first. */
export function ganttRows(a: Timeline, b: Timeline | undefined): string[] {
  const number = new Map<string, number>();
  for (const { kind } of [...a.jobs, ...(b?.jobs ?? [])]) number.set(kind, (number.get(kind) ?? 0) + 1);
  return [...number].sort((x, y) => y[1] - x[1] || x[0].localeCompare(y[0])).map(([kind]) => kind);
}

export function drawGantt(canvas: HTMLCanvasElement, rows: string[], frame: Frame, ink: Colours): void {
  const { clientWidth: width } = canvas;
  const height = Math.max(1, rows.length) * ROW + AXIS;
  if (width === 0) return;
  canvas.style.height = `${height}px`;
  [canvas.width, canvas.height] = [width * devicePixelRatio, height * devicePixelRatio];
  const context = canvas.getContext('2d');
  if (!context) return;
  context.scale(devicePixelRatio, devicePixelRatio);
  const { min, max } = frame.range;
  const x = (ms: number) => frame.left + ((ms - min) / (max - min)) * (width - frame.left - frame.right);
  rows.forEach((kind, row) => {
    const top = row * ROW;
    context.fillStyle = ink.line;
    context.fillRect(frame.left, top + ROW - 1, width - frame.left - frame.right, 1);
    lane(context, frame.a.jobs, kind, x, frame.range, top + 3, frame.b ? 7 : 14, ink.a, ink);
    if (frame.b) lane(context, frame.b.jobs, kind, x, frame.range, top + 11, 7, ink.b, ink);
  });
  context.font = '11px system-ui, sans-serif';
  context.textBaseline = 'middle';
  context.fillStyle = ink.soft;
  rows.forEach((kind, row) => context.fillText(kind.replace(/^memwal_/, ''), 2, row * ROW + ROW / 2, frame.left - 8));
  for (const { at_ms } of frame.a.faults) upright(context, x(at_ms), height, ink.bad, frame, [2, 2]);
  upright(context, x(frame.mark_ms), height, ink.ink, frame, []);
}

function lane(
  context: CanvasRenderingContext2D, jobs: RanJob[], kind: string, x: (ms: number) => number, { min, max }: Range,
  top: number, height: number, colour: string, ink: Colours,
): void {
  for (const job of jobs) {
    const [from, to] = [job.started_ms ?? job.enqueued_ms, job.ended_ms ?? max];
    if (job.kind !== kind || to < min || job.enqueued_ms > max) continue;
    const [left, right] = [x(Math.max(from, min)), x(Math.min(to, max))];
    context.fillStyle = ink.soft;
    const waited = x(Math.max(job.enqueued_ms, min));
    if (left - waited >= 1) context.fillRect(waited, top + height / 2 - 0.5, left - waited, 1);
    context.fillStyle = { done: colour, open: ink.soft, failed: ink.bad, conflict: ink.wait }[job.outcome];
    context.fillRect(left, top, Math.max(1.5, right - left), height);
  }
}

function upright(context: CanvasRenderingContext2D, at: number, height: number, colour: string, frame: Frame, dash: number[]): void {
  if (at < frame.left - 1) return;
  context.strokeStyle = colour;
  context.lineWidth = 1;
  context.setLineDash(dash);
  context.beginPath();
  context.moveTo(Math.round(at) + 0.5, 0);
  context.lineTo(Math.round(at) + 0.5, height);
  context.stroke();
  context.setLineDash([]);
}

/** The picture in words. */
export function ganttLabel(a: Timeline): string {
  const rows = ganttRows(a, undefined).map((kind) => `${kind} ${count(a.totals.jobs[kind]?.done ?? 0)} done`);
  return rows.length > 0 ? `Jobs over time: ${rows.join(', ')}` : 'No job ran.';
}

/** What runs or waits at a moment, and what made it due. */
export function jobsAt({ jobs }: Timeline, ms: number): string {
  const there = jobs.filter((job) => job.enqueued_ms <= ms && (job.ended_ms ?? Infinity) >= ms);
  if (there.length === 0) {
    const last = jobs.filter((job) => (job.ended_ms ?? Infinity) <= ms).at(-1);
    return last ? `No job at this moment. Before: ${sentence(last)}` : 'No job at this moment.';
  }
  const rest = there.length - NAMED_MAX;
  return `${capital(many(there.length, 'job'))}: ${there.slice(0, NAMED_MAX).map(sentence).join('; ')}${rest > 0 ? `; and ${rest} more` : ''}`;
}

function sentence(job: RanJob): string {
  const { started_ms, ended_ms, outcome } = job;
  const how = outcome === 'done' ? '' : `, ${outcome}`;
  const took = started_ms !== undefined && ended_ms !== undefined ? ` took ${duration(ended_ms - started_ms)}` : started_ms === undefined ? ' waits' : ' runs';
  const why = job.why ? compared(job.why) : undefined;
  return `${job.kind}${took}${how}${why ? ` (${why.before} ${why.numbers})` : ''}`;
}
