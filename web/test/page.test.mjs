// The built page in a real browser: facts, policy, verdicts.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, afterEach, before, beforeEach, test } from 'node:test';
import { Visit, browser, serve } from './page.mjs';

const SHARD = '3f0c2a52-7f5e-4f0d-9d53-0a4f7f1c9b21';
const OTHER = 'a1b8d7e4-2c39-4b7e-8a10-5de1f2c3b4a5';
const COUNT = '#knob-wal_compact_trigger_count';

let site, chromium, visit, page;

before(async () => {
  site = await serve();
  chromium = await browser();
});

after(async () => {
  await chromium?.close();
  site?.close();
});

beforeEach(async () => {
  visit = await Visit.to(chromium, site.address);
  page = visit.page;
});

afterEach(async () => {
  assert.deepEqual(visit.complaints, [], 'the browser complains');
  await visit.close();
});

const stale = () => page.locator('#decisions .outdated').isVisible();
const fold = (shard = SHARD) => visit.verdict('fold', shard);

test('the example shows its story, verdicts, reasons and drawing', async () => {
  assert.equal(await fold(), 'Due');
  assert.match(await page.textContent('#story'), /^An example/);
  assert.match(await page.textContent('#headline'), /^3 jobs would start now: .*fold 4 SSTables of shard 3f0c2a52… \(64 MiB\)/);
  assert.match(await page.textContent('#summary'), /^3 due, 6 not due, 1 held, 1 off\./);
  const cards = await page.textContent('#verdicts');
  for (const part of ['memwal_compaction 5..8, 64 MiB', 'SSTables 4 ≥ 4', 'exactly there', 'Waits for index body_idx', 'unmeasured, 1 GiB needed']) {
    assert.ok(cards.includes(part), `the cards do not say \`${part}\``);
  }
  assert.match(await page.textContent('#drawing'), /sstables +\.\.\.\.#### /);
});

test('each of the five decisions and of a shard’s three has its card', async () => {
  const decisions = await page.locator('.card').evaluateAll((cards) => cards.map((card) => card.dataset.decision));
  const shard = ['fold', 'retire', 'collect'];
  assert.deepEqual(decisions, ['wal_catchup', 'index', 'compaction', 'cleanup', 'remap', ...shard, ...shard]);
});

test('raising the count trigger turns the fold off, and back to defaults turns it on again', async () => {
  await page.fill(COUNT, '5');
  assert.equal(await fold(), 'Not due');
  assert.equal(await page.textContent('#settings-text'), 'wal_compact_trigger_count = 5');
  await page.click('#defaults');
  assert.equal(await fold(), 'Due');
  assert.equal(await page.inputValue(COUNT), '4');
  assert.ok(await page.locator('#settings').isHidden());
});

test('bytes and age each make a fold due by themselves', async () => {
  await page.fill(COUNT, '100');
  assert.equal(await fold(), 'Not due');
  await page.fill('#knob-wal_compact_trigger_bytes', '64MiB');
  assert.equal(await fold(), 'Due');
  await page.fill('#knob-wal_compact_trigger_bytes', '1GiB');
  await page.fill('#knob-wal_max_data_age_secs', '9m');
  assert.equal(await fold(), 'Due');
  await page.fill('#knob-wal_max_data_age_secs', '10m');
  assert.equal(await fold(), 'Not due');
});

test('cleanup is off by default, and says which knob turns it on', async () => {
  assert.equal(await visit.verdict('cleanup'), 'Off');
  await visit.card('cleanup').getByRole('button', { name: 'Try: set cleanup_min_version_age_secs to 7d' }).click();
  assert.equal(await visit.verdict('cleanup'), 'Due');
  assert.ok(await page.evaluate(() => document.activeElement?.dataset.decision === 'cleanup'), 'the card has the focus');
});

test('what would change a verdict does change it, and one step less does not', async () => {
  const card = visit.card('fold', SHARD);
  assert.match(await card.locator('.flips').textContent(), /wal_compact_trigger_count at 5 or more → Not due/);
  await card.getByRole('button', { name: 'Try: set wal_compact_trigger_count to 5' }).click();
  assert.equal(await fold(), 'Not due');
  const flips = await visit.card('fold', SHARD).locator('.flips').textContent();
  assert.match(flips, /After 1 more SSTable → Due/);
  assert.match(flips, /wal_compact_trigger_bytes at 64MiB or less → Due/);
  await page.fill('#knob-wal_compact_trigger_bytes', String(64 * 1024 * 1024 + 1));
  assert.equal(await fold(), 'Not due');
  await visit.card('fold', SHARD).getByRole('button', { name: 'Try: set wal_compact_trigger_bytes to 64MiB' }).click();
  assert.equal(await fold(), 'Due');
});

test('a held verdict says what it would be without what holds it', async () => {
  assert.match(await visit.card('retire', OTHER).locator('.flips').textContent(), /Without the wait for index body_idx to catch up → Due/);
});

test('the form has every knob of the planner, each with its default, range and help', async () => {
  const recorded = new URL('../../host/corpus/describe.answer.json', import.meta.url);
  const { knobs } = JSON.parse(readFileSync(recorded, 'utf8')).ok;
  await visit.unfold();
  const fields = page.locator('#policy .knob');
  assert.equal(await fields.count(), knobs.length);
  for (const { key, text, help } of knobs) {
    assert.equal(await page.locator('#policy').getByLabel(key, { exact: true }).inputValue(), text);
    const told = await fields.filter({ has: page.locator(`#knob-${key}`) }).textContent();
    assert.ok(told.includes(help) && told.includes(`default ${text}`), key);
  }
});

test('a search finds knobs by key and by help, in whatever group they stand', async () => {
  await page.fill('#knob-search', 'older version age');
  assert.equal(await page.locator('#policy .knob:visible').count(), 0);
  assert.equal(await page.textContent('#knob-found'), '0 knobs');
  await page.fill('#knob-search', 'cleanup first');
  assert.deepEqual(await page.locator('#policy .knob:visible label').allTextContents(), ['cleanup_initial_version']);
  await page.fill('#knob-search', '');
  await page.fill(COUNT, '6');
  await page.check('#changed-only');
  assert.deepEqual(await page.locator('#policy .knob:visible label').allTextContents(), ['wal_compact_trigger_count']);
});

test('a value out of range is refused beside its field, and the verdicts are marked as out of date', async () => {
  await page.fill(COUNT, '-1');
  assert.equal(await page.getAttribute(COUNT, 'aria-invalid'), 'true');
  assert.match(await page.textContent(`${COUNT}-error`), /`wal_compact_trigger_count`: `-1`/);
  assert.ok(await stale());
  await page.fill(COUNT, '4');
  assert.equal(await page.getAttribute(COUNT, 'aria-invalid'), 'false');
  assert.ok(!(await stale()));
});

test('a legal but odd value gets the planner’s remark', async () => {
  await page.fill(COUNT, '50');
  assert.match(await page.textContent(`${COUNT}-error`), /^Note: 50 SSTables make a fold due, but a pass takes 32/);
});

test('facts that are not JSON, not facts, or contradict themselves each get a message', async () => {
  const example = JSON.parse(await page.inputValue('#facts'));
  example.shards[1].shard = SHARD;
  const cases = [
    ['{"table": ', /^not JSON: /],
    ['{"tabel": "t"}', /unknown field `tabel`/],
    ['{"table": "t", "version": -1}', /-1/],
    ['[1]', /./],
    ['null', /./],
    [JSON.stringify(example), new RegExp(SHARD)],
  ];
  for (const [text, message] of cases) {
    await visit.type(text);
    assert.match(await page.textContent('#facts-error'), message);
    assert.equal(await page.getAttribute('#facts', 'aria-invalid'), 'true');
    assert.ok(await stale());
  }
  await visit.type('');
  assert.match(await page.textContent('#summary'), /^No facts yet/);
  assert.equal(await page.locator('.card').count(), 0);
  await page.click('#example');
  assert.equal(await fold(), 'Due');
});

test('time alone makes the fold due at the moment the verdict names', async () => {
  assert.equal(await fold(OTHER), 'Not due');
  await visit.card('fold', OTHER).getByText('Go there').click();
  assert.equal(await page.inputValue('#now'), '2026-01-22T12:00', 'in Paris it is an hour later');
  assert.equal(await fold(OTHER), 'Due');
  await page.click('text=−1 h');
  assert.equal(await fold(OTHER), 'Not due');
});

test('times are in the reader’s zone, which is named', async () => {
  assert.equal(await page.textContent('#now-label'), 'Now (Europe/Paris)');
  assert.match(await visit.card('fold', OTHER).textContent(), /22 Jan 2026, 12:00:00 (CET|UTC\+1|GMT\+1)/);
});

test('by force every SSTable is folded', async () => {
  await page.selectOption('#trigger', 'forced');
  assert.equal(await fold(OTHER), 'Due');
});

test('after more SSTables, or later, the plan is another, and it says when', async () => {
  const row = page.locator('#what-if-table tr', { hasText: /^Fold a1b8d7e4/ });
  assert.match(await row.textContent(), /starts after 3 more SSTables, or in 6 d 23 h/);
  const then = () => row.locator('.badge').nth(1).textContent();
  await page.fill('#more', '2');
  assert.equal(await then(), 'Not due');
  await page.fill('#more', '3');
  assert.equal(await then(), 'Due');
  await page.fill('#more', '0');
  await page.focus('#later');
  await page.keyboard.press('End');
  assert.match(await page.textContent('#later-text'), /30 d later/);
  assert.equal(await then(), 'Due');
});

test('a file is read, whether it is opened or dropped', async () => {
  const facts = (table) => JSON.stringify({ table, version: 1 });
  await page.setInputFiles('#file', { name: 'facts.json', mimeType: 'application/json', buffer: Buffer.from(facts('opened')) });
  await page.waitForSelector('text=Table opened version 1');
  await page.evaluate((text) => {
    const dataTransfer = new DataTransfer();
    dataTransfer.items.add(new File([text], 'facts.json'));
    document.body.dispatchEvent(new DragEvent('drop', { dataTransfer, bubbles: true, cancelable: true }));
  }, facts('dropped'));
  await page.waitForSelector('text=Table dropped version 1');
  assert.equal(await page.textContent('#source'), 'From the file facts.json.');
});

test('numbers beyond 2^53 reach the planner as they were typed', async () => {
  await visit.type('{"table":"t","version":18446744073709551615}');
  assert.match(await page.textContent('#drawing'), /version 18446744073709551615/);
});

test('a key of the table that is not followed is told, and why', async () => {
  await visit.type({ table: 't', version: 1, overrides: { 'caretaker.colour': '1' } });
  const told = page.locator('.complaints', { hasText: 'not followed' });
  assert.match(await told.textContent(), /caretaker\.colour.*is not a setting/s);
});

test('markup in names is shown as text', async () => {
  const evil = '<img src=x onerror=alert(1)>';
  const example = JSON.parse(await page.inputValue('#facts'));
  example.table = evil;
  example.indexes[1].name = evil;
  example.shards[1].retained_by = evil;
  example.overrides = { [`caretaker.${evil}`]: '1' };
  await visit.type(example);
  for (const part of ['#verdicts', '#drawing', '#chips', '.complaints']) {
    assert.ok((await page.textContent(part)).includes('<img src=x'), part);
  }
  await visit.simulated();
  assert.equal(await page.locator('img').count(), 0);
});

test('a table of many shards shows the busy ones first, and a part at a time', async () => {
  const shards = Array.from({ length: 100 }, (_, at) => ({ shard: `${String(at).padStart(8, '0')}-0000-4000-8000-000000000000` }));
  shards[77].sstables = [1, 2, 3, 4].map((generation) => ({ generation, path: `g${generation}`, bytes: 1024, flushed_at_ms: 1768478000000 }));
  await visit.type({ table: 't', version: 1, primary_key: ['id'], shards });
  const shown = () => page.locator('.card[data-decision="fold"]').evaluateAll((cards) => cards.map((card) => card.dataset.shard));
  assert.equal((await shown()).length, 24);
  assert.equal((await shown())[0], shards[77].shard);
  await page.click('#more-shards');
  assert.equal((await shown()).length, 48);
});

test('what would change a large table is asked for in a worker, and arrives', async () => {
  const fragments = Array.from({ length: 400 }, (_, id) => ({ id, rows: 1_048_576, deleted: 0, bytes: 536870912 }));
  await visit.type({ table: 't', version: 1, fragments });
  await page.waitForFunction(() => /After 4 more small fragments/.test(document.querySelector('[data-decision="compaction"] .flips').textContent));
});
