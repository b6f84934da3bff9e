// States of tables and jobs, as the page words them: the worst first.

export interface Word {
  word: string;
  /** How it looks; never the only sign. */
  tone: 'bad' | 'wait' | 'on' | 'calm' | 'off';
  help: string;
}

export const WORDS: Word[] = [
  { word: 'lease expired', tone: 'bad', help: 'A worker has a job of it and has not been heard of for 30 s; another one takes the job over' },
  { word: 'failed', tone: 'bad', help: 'It could not be evaluated, or its work keeps failing' },
  { word: 'held', tone: 'wait', help: 'Work that is due waits for something that does not end by itself' },
  { word: 'running', tone: 'on', help: 'A worker runs a job of it' },
  { word: 'due', tone: 'on', help: 'Work is due and waits for its turn' },
  { word: 'never evaluated', tone: 'wait', help: 'It was not looked at yet' },
  { word: 'disabled', tone: 'off', help: 'Its config pauses it: nothing but index catch-up runs' },
  { word: 'idle', tone: 'calm', help: 'Nothing is due' },
  { word: 'another agent\'s', tone: 'off', help: 'Another agent tends it; what it knows is on its own page' },
];

export function rank(word: string): number {
  const at = WORDS.findIndex((known) => known.word === word);
  return at < 0 ? WORDS.length : at;
}

export function tone(word: string): string {
  return WORDS[rank(word)]?.tone ?? 'calm';
}
