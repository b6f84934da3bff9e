// Numbers as people read them. Values stay whole numbers; only their text is rounded.

const BYTES = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'] as const;
const TIMES = [
  ['d', 86_400_000],
  ['h', 3_600_000],
  ['min', 60_000],
  ['s', 1_000],
  ['ms', 1],
] as const;

/** `1610612736` as `1.5 GiB`. */
export function bytes(value: number): string {
  let unit = 0;
  while (value >= 1024 && unit < BYTES.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${Number.isInteger(value) ? value : value.toFixed(value < 10 ? 2 : 1)} ${BYTES[unit]}`;
}

/** Milliseconds as their two largest units: `6 d 23 h`. */
export function duration(ms: number): string {
  const first = TIMES.findIndex(([, size]) => ms >= size);
  const [name, size] = TIMES[first] ?? ['s', 1_000];
  const whole = `${Math.floor(ms / size)} ${name}`;
  const next = TIMES[first + 1];
  const rest = next ? Math.floor((ms % size) / next[1]) : 0;
  return next && rest > 0 ? `${whole} ${rest} ${next[0]}` : whole;
}

const MOMENT = new Intl.DateTimeFormat('en-GB', {
  year: 'numeric',
  month: 'short',
  day: 'numeric',
  hour: '2-digit',
  minute: '2-digit',
  second: '2-digit',
  timeZoneName: 'short',
});

/** Milliseconds since the epoch in the reader's zone, which is named: `15 Jan 2026, 13:00:00 CET`. */
export function moment(ms: number): string {
  return Number.isNaN(new Date(ms).getTime()) ? `${ms} ms` : MOMENT.format(ms);
}

/** The reader's zone, as `Europe/Paris`. */
export function zone(): string {
  return MOMENT.resolvedOptions().timeZone;
}

/** A whole number with its digits in groups. */
export function count(value: number): string {
  return value.toLocaleString('en').replaceAll(',', '\u202f');
}

/** Thousandths as a share of a hundred. */
export function percent(permille: number): string {
  return `${(permille / 10).toFixed(1)} %`;
}

/** `1 file`, `2 files`. */
export function many(value: number, one: string, more = `${one}s`): string {
  return `${count(value)} ${value === 1 ? one : more}`;
}
