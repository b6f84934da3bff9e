// The browser's planner against the recorded native answers (host/corpus), and its picks against their cases.

import assert from 'node:assert/strict';
import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { before, test } from 'node:test';

const GENERATED = new URL('../src/generated/', import.meta.url);
const CORPUS = new URL('../../host/corpus/', import.meta.url);
const CASES = new URL('../../planner/tests/data/paimon/', import.meta.url);
const REQUEST = '.request.json';

let planner;

before(async () => {
  assert.ok(existsSync(new URL('planner.js', GENERATED)), 'there is no web/src/generated: run `make wasm` first');
  planner = await import(new URL('planner.js', GENERATED));
  planner.initSync({ module: readFileSync(new URL('planner_bg.wasm', GENERATED)) });
});

const names = readdirSync(CORPUS)
  .filter((file) => file.endsWith(REQUEST))
  .map((file) => file.slice(0, -REQUEST.length));

test('the corpus is there', () => assert.ok(names.length >= 10));

for (const name of names) {
  test(`the browser's answer to ${name} is byte for byte the native one`, () => {
    const request = readFileSync(new URL(name + REQUEST, CORPUS), 'utf8');
    const recorded = readFileSync(new URL(`${name}.answer.json`, CORPUS));
    assert.deepEqual(Buffer.from(planner.call(request)), recorded, 'if the planner changed since, run `make wasm`');
  });
}

for (const [file, checks] of [['upstream.json', 511], ['constructed.json', 167]]) {
  test(`the browser's picks agree with every case of ${file}`, () => {
    const cases = JSON.parse(readFileSync(new URL(file, CASES), 'utf8'));
    const { ok, error } = JSON.parse(planner.call(JSON.stringify({ op: 'vectors', cases })));
    assert.ok(ok, error?.message);
    assert.deepEqual(ok.results.filter(({ agrees }) => !agrees), []);
    assert.deepEqual([ok.cases, ok.checks, ok.agree], [cases.length, checks, checks]);
  });
}
