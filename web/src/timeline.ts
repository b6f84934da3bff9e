// A simulation as charts above each other, with one time axis, one cursor and one zoom for all of them.

import uPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';
import type { SampleName, Timeline } from './door';
import { make, say } from './dom';
import { drawGantt, ganttRows } from './gantt';
import { bytes, count, duration } from './units';

interface Panel {
  title: string;
  help: string;
  series: [SampleName, string][];
  show: (value: number) => string;
  /** Distances between marks of the value axis. */
  steps: number[];
}

/** Distances between marks of a time axis, milliseconds. */
const STEPS = [1, 2, 5, 10, 15, 30].map((s) => s * 1_000).concat(
  [1, 2, 5, 10, 15, 30].map((m) => m * 60_000),
  [1, 2, 3, 6, 12].map((h) => h * 3_600_000),
  [1, 2, 5, 10, 20, 50, 100, 200, 500].map((d) => d * 86_400_000),
);
const TENS = Array.from({ length: 16 }, (_, at) => [1, 2, 5].map((digit) => digit * 10 ** at)).flat();
const TWOS = Array.from({ length: 52 }, (_, at) => 2 ** at);

const PANELS: Panel[] = [
  { title: 'SSTables not folded', help: 'all shards', series: [['unfolded', '']], show: count, steps: TENS },
  { title: 'A base-only reader is behind', help: 'age of the oldest row it misses', series: [['staleness_ms', '']], show: duration, steps: STEPS },
  { title: 'Fragments', help: 'dashed: small ones', series: [['fragments', ''], ['small_fragments', 'small']], show: count, steps: TENS },
  { title: 'Unindexed rows', help: 'of the index that lacks most', series: [['unindexed_rows', '']], show: count, steps: TENS },
  { title: 'On storage', help: 'dashed: garbage', series: [['disk_bytes', ''], ['garbage_bytes', 'garbage']], show: bytes, steps: TWOS },
  { title: 'Jobs running', help: 'dashed: waiting for a worker', series: [['running', ''], ['queued', 'waiting']], show: count, steps: TENS },
];

const AXIS = 62;
/** Where the jobs begin, after the names of their kinds. */
const JOBS = 110;
interface Plotted { plot: uPlot; panel: Panel; readout: HTMLElement; frame: HTMLElement }

export interface Range { min: number; max: number }

export class Charts {
  #plots: Plotted[] = [];
  #a: Timeline | undefined;
  #b: Timeline | undefined;
  #range: Range = { min: 0, max: 1 };
  #mark_ms = 0;
  /** Where the pointer is, while it is over a chart. */
  #hover_ms: number | undefined;
  #busy = false;

  constructor(
    readonly root: HTMLElement,
    readonly gantt: HTMLCanvasElement,
    /** Somebody chose a moment, or looks at one (`chosen` is false). */
    readonly seen: (ms: number, chosen: boolean) => void,
  ) {
    const size = new ResizeObserver(() => this.#resize());
    size.observe(root);
    // Colours are read once a drawing: the scheme may change under it.
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.#rebuild());
    gantt.addEventListener('click', ({ offsetX }) => this.seen(this.#at(offsetX), true));
  }

  get range(): Range {
    return this.#range;
  }

  /** Empty frames, so that nothing moves when the first run is done. */
  frames(): void {
    const frames = PANELS.map(({ title, help }) => make('figure', 'panel', make('figcaption', '', make('b', '', title), make('span', 'number readout'), make('span', 'hint', help)), make('div', 'plot')));
    this.root.replaceChildren(...frames);
  }

  show(a: Timeline, b: Timeline | undefined): void {
    const sameSpan = this.#a?.duration_ms === a.duration_ms;
    const sameShape = sameSpan && (this.#b === undefined) === (b === undefined) && this.#a?.samples.at_ms.length === a.samples.at_ms.length;
    [this.#a, this.#b] = [a, b];
    if (!sameSpan) this.#range = { min: 0, max: a.duration_ms };
    if (sameShape && this.#plots.length > 0) {
      this.#quietly(() => this.#plots.forEach(({ plot, panel }) => {
        plot.setData(this.#data(panel), true);
        plot.setScale('x', this.#range);
      }));
    } else {
      this.#rebuild();
    }
    this.mark(Math.min(this.#mark_ms, a.duration_ms));
    this.#drawGantt();
  }

  mark(ms: number): void {
    this.#mark_ms = ms;
    this.#read();
    for (const { plot } of this.#plots) plot.redraw(false);
    this.#drawGantt();
  }

  /** Shows `share` of what is shown, around the mark. */
  zoom(share: number): void {
    const { min, max } = this.#range;
    const end = this.#a?.duration_ms ?? 1;
    const width = Math.min(end, Math.max(60_000, (max - min) * share));
    const middle = Math.min(Math.max(this.#mark_ms, min), max);
    const from = Math.min(Math.max(0, middle - width / 2), end - width);
    this.#zoomTo({ min: from, max: from + width });
  }

  whole(): void {
    this.#zoomTo({ min: 0, max: this.#a?.duration_ms ?? 1 });
  }

  /** The values at a moment, for people and screen readers. */
  values(ms: number): string {
    const at = this.#entry(ms);
    return PANELS.map((panel) => `${panel.title} ${this.#values(panel, at).join(' and ')}`).join('; ');
  }

  #at(left: number): number {
    const width = this.gantt.clientWidth - JOBS - 8;
    const { min, max } = this.#range;
    return Math.round(Math.min(max, Math.max(min, min + ((left - JOBS) / width) * (max - min))));
  }

  #zoomTo(range: Range): void {
    this.#range = range;
    this.#quietly(() => this.#plots.forEach(({ plot }) => plot.setScale('x', range)));
    this.#drawGantt();
  }

  /** Charts tell each other of changes only when a person made them. */
  #quietly(work: () => void): void {
    this.#busy = true;
    work();
    // uPlot calls its hooks in a microtask.
    queueMicrotask(() => queueMicrotask(() => { this.#busy = false; }));
  }

  #data(panel: Panel): uPlot.AlignedData {
    const runs = [this.#a, this.#b].filter((run): run is Timeline => run !== undefined);
    const series = runs.flatMap((run) => panel.series.map(([name]) => run.samples[name]));
    return [this.#a?.samples.at_ms ?? [], ...series] as uPlot.AlignedData;
  }

  #rebuild(): void {
    if (!this.#a) return;
    for (const { plot } of this.#plots) plot.destroy();
    if (this.root.childElementCount !== PANELS.length) this.frames();
    const ink = colours(this.root);
    this.#quietly(() => {
      this.#plots = PANELS.map((panel, at) => this.#plot(panel, this.root.children[at] as HTMLElement, ink));
    });
    this.#read();
    this.#drawGantt();
  }

  #plot(panel: Panel, figure: HTMLElement, ink: Colours): Plotted {
    const frame = figure.querySelector<HTMLElement>('.plot') as HTMLElement;
    const readout = figure.querySelector<HTMLElement>('.readout') as HTMLElement;
    const lines = (stroke: string) => panel.series.map(([, second]): uPlot.Series => ({
      stroke,
      width: 1.5,
      dash: second ? [4, 3] : [],
      points: { show: false },
    }));
    const axis = { stroke: ink.soft, grid: { stroke: ink.line, width: 1 }, ticks: { show: false }, font: '11px system-ui, sans-serif' };
    const options: uPlot.Options = {
      width: frame.clientWidth || 300,
      height: frame.clientHeight || 120,
      padding: [8, 8, 0, 0],
      legend: { show: false },
      cursor: { sync: { key: 'run' }, drag: { x: true, y: false }, points: { size: 5 }, y: false },
      scales: { x: { time: false, range: () => [this.#range.min, this.#range.max] }, y: { range: (_, __, max) => [0, Math.max(max, 1) * 1.08] } },
      axes: [
        { ...axis, size: 24, incrs: STEPS, space: 64, values: (_, values) => values.map((ms) => (ms === 0 ? '0' : duration(ms))) },
        { ...axis, size: AXIS, space: 28, incrs: panel.steps, values: (_, values) => values.map((value) => (value === 0 ? '0' : panel.show(value))) },
      ],
      series: [{}, ...lines(ink.a), ...(this.#b ? lines(ink.b) : [])],
      hooks: {
        setSelect: [(plot) => this.#selected(plot)],
        setCursor: [(plot) => this.#moved(plot)],
        draw: [(plot) => this.#lines(plot, ink)],
      },
    };
    // A drag zooms all charts, not the one it was made in.
    options.cursor = { ...options.cursor, drag: { x: true, y: false, setScale: false } };
    const plot = new uPlot(options, this.#data(panel), frame);
    plot.over.addEventListener('click', () => {
      const left = plot.cursor.left ?? -1;
      if (left >= 0 && plot.select.width === 0) this.seen(Math.round(plot.posToVal(left, 'x')), true);
    });
    plot.over.addEventListener('dblclick', () => this.whole());
    return { plot, panel, readout, frame };
  }

  #selected(plot: uPlot): void {
    const { left, width } = plot.select;
    if (width < 5) return;
    const range = { min: plot.posToVal(left, 'x'), max: plot.posToVal(left + width, 'x') };
    for (const { plot: each } of this.#plots) each.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    this.#zoomTo(range);
  }

  #moved(plot: uPlot): void {
    if (this.#busy) return;
    const left = plot.cursor.left ?? -1;
    const hover = left < 0 ? undefined : plot.posToVal(left, 'x');
    if (hover === this.#hover_ms) return;
    this.#hover_ms = hover;
    this.#read();
    this.seen(hover ?? this.#mark_ms, false);
  }

  /** Entries end at their time, so a moment's entry is the first that does not end before it. */
  #entry(ms: number): number {
    const ends = this.#a?.samples.at_ms ?? [];
    const found = ends.findIndex((end) => end >= ms);
    return found < 0 ? ends.length - 1 : found;
  }

  /** One text a run. */
  #values({ series, show }: Panel, at: number): string[] {
    const runs = [this.#a, this.#b].filter((run): run is Timeline => run !== undefined);
    const values = (run: Timeline) => series.map(([name, word]) => `${show(run.samples[name][at] ?? 0)}${word ? ` ${word}` : ''}`).join(', ');
    return runs.map((run, side) => (runs.length > 1 ? `${side === 0 ? 'A' : 'B'} ${values(run)}` : values(run)));
  }

  #read(): void {
    const at = this.#entry(this.#hover_ms ?? this.#mark_ms);
    for (const { panel, readout } of this.#plots) {
      const texts = this.#values(panel, at);
      if (readout.childElementCount !== texts.length) readout.replaceChildren(...texts.map((_, side) => make('span', side === 0 ? 'of-a' : 'of-b')));
      texts.forEach((text, side) => say(readout.children[side] as HTMLElement, text));
    }
  }

  /** The mark, and what went wrong on purpose. */
  #lines(plot: uPlot, ink: Colours): void {
    const { ctx, bbox } = plot;
    const line = (ms: number, colour: string, dash: number[]) => {
      if (ms < this.#range.min || ms > this.#range.max) return;
      const x = Math.round(plot.valToPos(ms, 'x', true)) + 0.5;
      ctx.save();
      ctx.strokeStyle = colour;
      ctx.lineWidth = devicePixelRatio;
      ctx.setLineDash(dash.map((part) => part * devicePixelRatio));
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
      ctx.restore();
    };
    for (const fault of this.#a?.faults ?? []) line(fault.at_ms, ink.bad, [2, 2]);
    line(this.#mark_ms, ink.ink, []);
  }

  #drawGantt(): void {
    const [a, b] = [this.#a, this.#b];
    if (!a) return;
    const rows = ganttRows(a, b);
    this.root.dataset.range = `${Math.round(this.#range.min)} ${Math.round(this.#range.max)}`;
    drawGantt(this.gantt, rows, { a, b, range: this.#range, mark_ms: this.#mark_ms, left: JOBS, right: 8 }, colours(this.root));
  }

  #resize(): void {
    for (const { plot, frame } of this.#plots) {
      if (frame.clientWidth > 0 && frame.clientWidth !== plot.width) plot.setSize({ width: frame.clientWidth, height: frame.clientHeight });
    }
    this.#drawGantt();
  }
}

export interface Colours {
  ink: string;
  soft: string;
  line: string;
  a: string;
  b: string;
  bad: string;
  wait: string;
  sheet: string;
}

/** The page's colours as a canvas takes them: in the scheme that is shown. */
export function colours(within: HTMLElement): Colours {
  const probe = make('span');
  within.append(probe);
  const read = (name: string) => {
    probe.style.color = `var(--${name})`;
    return getComputedStyle(probe).color;
  };
  const found = { ink: read('ink'), soft: read('soft'), line: read('line'), a: read('accent'), b: read('second'), bad: read('bad'), wait: read('wait'), sheet: read('sheet') };
  probe.remove();
  return found;
}
