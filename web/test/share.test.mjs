// What goes in and out of the page: links, records, settings files, the server's own tables.

import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { after, afterEach, before, beforeEach, test } from 'node:test';
import { Visit, browser, serve } from './page.mjs';

const COUNT = '#knob-wal_compact_trigger_count';
const SHARD = '3f0c2a52-7f5e-4f0d-9d53-0a4f7f1c9b21';
const EXAMPLE = readFileSync(new URL('../src/example.json', import.meta.url), 'utf8');

let site, chromium, visit, page;

before(async () => {
  const facts = JSON.stringify({ ...JSON.parse(EXAMPLE), table: 'live$events' });
  site = await serve({ '/v1/table/live%24events/facts': { text: facts }, '/v1/table/gone/facts': { status: 404, text: '{}' } });
  chromium = await browser();
});

after(async () => {
  await chromium?.close();
  site?.close();
});

beforeEach(async () => {
  await open('');
});

afterEach(async () => {
  assert.deepEqual(visit.complaints, [], 'the browser complains');
  await visit.close();
});

async function open(rest, ready) {
  await visit?.close();
  visit = await Visit.to(chromium, site.address + rest, {}, ready);
  page = visit.page;
}

/** The link to the page as it is. */
async function link() {
  await page.click('#share');
  await page.waitForSelector('#link:visible');
  return page.inputValue('#link');
}

/** All that somebody can have changed. */
const state = () => page.evaluate(() => ({
  facts: document.querySelector('#facts').value,
  now: document.querySelector('#now').value,
  trigger: document.querySelector('#trigger').value,
  knobs: [...document.querySelectorAll('.knob input')].map((input) => [input.id, input.value]),
  side: document.querySelector('#side-b').checked,
  preset: document.querySelector('#preset').value,
  span: document.querySelector('#span').value,
  seed: document.querySelector('#seed').value,
  table: document.querySelector('#from-table').checked,
  faults: document.querySelector('#fault-list').textContent,
}));

test('a link holds all that was changed, exactly', async () => {
  await visit.simulated();
  await visit.unfold();
  await visit.type('{"table":"größer","version":18446744073709551615}');
  await page.fill('#now', '2026-03-01T10:20:30');
  await page.selectOption('#trigger', 'relief');
  await page.fill(COUNT, '7');
  await page.click('#compare');
  await page.fill('#knob-wal_max_data_age_secs', '90m');
  await page.fill('#knob-wal_compact_trigger_bytes', 'nonsense');
  await page.selectOption('#preset', { index: 3 });
  await page.fill('#workload-shards', '3');
  await page.selectOption('#span', { label: '6 h' });
  await page.fill('#seed', '42');
  await page.uncheck('#from-table');
  await page.click('#fault-burst');
  const before = await state();
  const address = await link();
  await open(new URL(address).hash, 'h1');
  await page.waitForFunction(() => document.querySelector('#seed').value === '42');
  assert.deepEqual(await state(), before);
});

test('the link of the page as it opens is short, and no fragment but its own is read', async () => {
  assert.ok((await link()).length < site.address.length + 20);
  await open('#simulation');
  assert.equal(await visit.verdict('fold', SHARD), 'Due');
  assert.ok(await page.locator('#notice').isHidden());
});

test('a broken link is told, and the page shows its defaults', async () => {
  await page.fill(COUNT, '7');
  const whole = new URL(await link()).hash;
  for (const broken of [whole.slice(0, -3), '#p1=!!!', '#p1=', '#p9=abc', `${whole}AAAA`]) {
    await open(broken);
    assert.match(await page.textContent('#notice'), /^The link can’t be read: /, broken);
    assert.equal(await page.inputValue(COUNT), '4');
    assert.equal(await visit.verdict('fold', SHARD), 'Due');
  }
});

test('a link that holds something else than a state is refused, whatever it is', async () => {
  const pack = (value) => page.evaluate(async (text) => {
    const packed = new Blob([text]).stream().pipeThrough(new CompressionStream('deflate-raw'));
    const bytes = new Uint8Array(await new Response(packed).arrayBuffer());
    return `#p1=${btoa(String.fromCharCode(...bytes)).replaceAll('+', '-').replaceAll('/', '_').replaceAll('=', '')}`;
  }, JSON.stringify(value));
  const wrong = [null, [], 7, { a: 7 }, { a: { x: 1 } }, { now: -1 }, { now: 'x' }, { facts: {} }, { more: 1 }, { run: { seed: 'x' } }, { run: { faults: [{}] } }, { __proto__: null, constructor: 'x' }];
  for (const value of wrong) {
    const fragment = await pack(value);
    await page.evaluate((hash) => { location.hash = hash; }, fragment);
    await page.waitForFunction(() => !document.querySelector('#notice').hidden);
    assert.match(await page.textContent('#notice'), /does not know/, JSON.stringify(value));
    await page.evaluate(() => { location.hash = ''; });
    await page.waitForFunction(() => document.querySelector('#notice').hidden);
  }
});

test('facts that are too large for a link are told, with what to do', async () => {
  const noise = Array.from({ length: 6000 }, (_, at) => ({ id: at, rows: Math.floor(Math.abs(Math.sin(at)) * 1e9) }));
  await visit.type({ table: 't', version: 1, fragments: noise });
  await page.click('#share');
  await page.waitForSelector('#link-error:visible');
  assert.match(await page.textContent('#link-error'), /too large for a link.*record/);
});

test('the settings file is the planner’s own', async () => {
  await page.fill(COUNT, '7');
  const { name, text } = await visit.download('#toml');
  assert.equal(name, 'caretaker.toml');
  assert.match(text, /^wal_compact_trigger_count = 7$/m);
  assert.match(text, /^# wal_compact_trigger_bytes = "1GiB"$/m);
});

test('the record holds facts, policy, hash and plan, and opens again as what it was made from', async () => {
  await visit.type('{"table":"t","version":18446744073709551615}');
  await page.fill(COUNT, '7');
  await page.selectOption('#trigger', 'forced');
  const { text } = await visit.download('#record');
  const record = JSON.parse(text);
  assert.deepEqual(Object.keys(record), ['facts', 'policy', 'now_ms', 'trigger', 'config', 'plan', 'planner', 'policy_sha256', 'set']);
  assert.equal(record.policy.trigger_count, 7);
  assert.equal(record.plan.verdicts.length, 5);
  assert.ok(text.includes('"facts": {"table":"t","version":18446744073709551615}'), 'numbers stand as they stood');
  await page.click('#defaults');
  await page.click('#example');
  await page.selectOption('#trigger', 'tick');
  await page.setInputFiles('#file', { name: 'decision.json', mimeType: 'application/json', buffer: Buffer.from(text) });
  await page.waitForFunction(() => document.querySelector('#trigger').value === 'forced');
  assert.equal(await page.inputValue(COUNT), '7');
  assert.equal(await page.inputValue('#facts'), '{"table":"t","version":18446744073709551615}');
});

test('the hash is what a decision record of the server says', async () => {
  // `planner\npolicy\nconfig`, the policy as it is written whole: fields in their order, without spaces.
  const { text } = await visit.download('#record');
  const record = JSON.parse(text);
  const policy = text.match(/^ {2}"policy": (.*),$/m)[1];
  const hash = createHash('sha256').update(`${record.planner}\n${policy}\n{}`).digest('hex');
  assert.equal(record.planner.slice(0, 9), 'built-in ');
  assert.equal(record.policy_sha256, hash);
  assert.equal(await page.textContent('#hash'), hash);
  assert.ok(policy.startsWith('{"tick_ms":5000,"trigger_count":4,'), policy);
});

test('without a secure context the page works, and says that it has no hash', async () => {
  const { hostname } = new URL(site.address);
  await visit.close();
  const context = await chromium.newContext();
  page = await context.newPage();
  visit.page = page;
  await page.addInitScript(() => Object.defineProperty(crypto, 'subtle', { value: undefined }));
  await page.goto(site.address);
  await page.waitForSelector('.card');
  assert.equal(hostname, '127.0.0.1');
  assert.match(await page.textContent('#hash'), /needs https/);
});

test('no button asks a server where none was named', async () => {
  assert.ok(await page.locator('#again').isHidden());
});

test('a table of the server that serves the page is read by its name, and again on demand', async () => {
  await open('?table=live%24events');
  await page.waitForSelector('text=Table live$events, as this server read it.');
  assert.ok(visit.addresses.every((address) => address.startsWith(new URL(site.address).origin)));
  const asked = () => visit.addresses.filter((address) => address.endsWith('/v1/table/live%24events/facts')).length;
  assert.equal(asked(), 1);
  await page.click('#again');
  await page.waitForFunction(() => document.querySelector('#source').textContent.startsWith('Table live'));
  assert.equal(asked(), 2);
});

test('a table that the server does not have is told', async () => {
  await open('?table=gone', '#facts-error:visible');
  assert.match(await page.textContent('#facts-error'), /`\/v1\/table\/gone\/facts` could not be read: it answered 404/);
  assert.match(await page.textContent('#summary'), /^No facts yet/);
  assert.match(visit.complaints.join(), /404/);
  visit.complaints.length = 0;
});
