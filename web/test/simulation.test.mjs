// The table over time: workloads, charts, faults, two policies on one seed.

import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach, test } from 'node:test';
import { Visit, browser, serve } from './page.mjs';

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
  await visit.simulated();
});

afterEach(async () => {
  assert.deepEqual(visit.complaints, [], 'the browser complains');
  await visit.close();
});

/** Does something that starts a run, and waits for its end. */
async function running(work) {
  await work();
  return visit.simulated();
}

/** The cells of a total, as numbers where they are one. */
async function total(name) {
  const row = page.locator('#totals tr', { has: page.locator('th', { hasText: name }) }).first();
  return (await row.locator('td').allTextContents()).map((text) => (/^[\d\u202f]+$/.test(text) ? Number(text.replaceAll('\u202f', '')) : text));
}

test('the table shown runs for a day at first, and the planner’s promise is judged', async () => {
  assert.match(await page.textContent('#run-status'), /^1 d simulated in \d+ ms\. A base-only reader kept to the planner’s bound of 14 d/);
  assert.equal(await page.locator('#charts canvas').count(), 6);
  assert.ok((await total('memwal_compaction'))[0] > 10);
  assert.match(await page.getAttribute('#gantt', 'aria-label'), /^Jobs over time: .*memwal_compaction \d+ done/);
});

test('each preset runs, and says what it is', async () => {
  const presets = await page.locator('#preset option').count();
  assert.ok(presets > 5);
  const seen = new Set();
  for (let index = 0; index < presets; index += 1) {
    await running(() => page.selectOption('#preset', { index }));
    seen.add(`${await page.textContent('#preset-help')} ${await total('Rows written')}`);
    assert.ok(await page.locator('#run-problem').isHidden());
  }
  assert.equal(seen.size, presets);
});

test('a setting of the workload counts, and one that is refused says so beside it', async () => {
  const [before] = await total('Rows written');
  await visit.unfold();
  await running(() => page.fill('#workload-rows_per_sec', '400'));
  const [after] = await total('Rows written');
  assert.ok(after > before * 1.9, `${before} ${after}`);
  await page.fill('#workload-rows_per_sec', '-1');
  assert.match(await page.textContent('#workload-rows_per_sec-error'), /`rows_per_sec`: `-1`/);
  assert.ok(await page.locator('#simulation .outdated').isVisible());
});

test('the same seed gives the same totals, whatever ran in between', async () => {
  await visit.unfold();
  await running(() => page.fill('#workload-failure_permille', '200'));
  const first = await page.textContent('#totals');
  await running(() => page.fill('#seed', '7'));
  assert.notEqual(await page.textContent('#totals'), first);
  await running(() => page.fill('#seed', '1'));
  assert.equal(await page.textContent('#totals'), first);
});

test('two policies run on one seed, and what differs is marked with its sign', async () => {
  await running(() => page.click('#compare'));
  assert.match(await page.textContent('#compared'), /A and B are the same so far/);
  await running(() => page.fill(COUNT, '8'));
  assert.match(await page.textContent('#compared'), /wal_compact_trigger_count48/);
  assert.match(await page.textContent('#compared'), /1 verdict of 11 differ.*Fold/);
  const [a, b, delta] = await total('Most SSTables not folded');
  assert.ok(b > a);
  assert.match(delta, new RegExp(`^\\+${b - a} \\(\\+\\d+ %\\) worse$`));
  assert.deepEqual((await total('Rows written')).slice(0, 2), [(await total('Rows written'))[0], (await total('Rows written'))[0]]);
  assert.match(await page.textContent('#charts'), /A \d+B \d+/);
  assert.deepEqual(await page.locator('.card[data-decision="fold"]').first().locator('.badge').allTextContents(), ['BNot due', 'ADue']);
  await page.check('#side-a');
  assert.equal(await page.inputValue(COUNT), '4');
  await running(() => page.click('#compare'));
  assert.equal((await total('Most SSTables not folded')).length, 1);
});

test('the cursor is moved by keyboard and by click, and tells what ran', async () => {
  await page.focus('#cursor');
  await page.keyboard.press('End');
  assert.match(await page.textContent('#cursor-moment'), /^1 d after the start, 16 Jan 2026, 13:00:00/);
  await page.locator('#charts .u-over').first().click({ position: { x: 100, y: 30 } });
  assert.match(await page.textContent('#cursor-moment'), /^\d+ h/);
  await page.locator('#gantt').click({ position: { x: 112, y: 20 } });
  assert.match(await page.textContent('#cursor-jobs'), /memwal_/);
});

test('a drag zooms every chart, and the whole run comes back', async () => {
  const end = () => page.evaluate(() => document.querySelector('#charts').dataset.range);
  const whole = await end();
  await page.locator('#charts .u-over').nth(1).evaluate((chart) => chart.scrollIntoView({ block: 'center' }));
  const box = await page.locator('#charts .u-over').first().boundingBox();
  await page.mouse.move(box.x + 40, box.y + 30);
  await page.mouse.down();
  await page.mouse.move(box.x + 140, box.y + 30, { steps: 4 });
  await page.mouse.up();
  assert.notEqual(await end(), whole);
  await page.click('#zoom-whole');
  assert.equal(await end(), whole);
  await page.click('#zoom-in');
  assert.equal(await end(), '0 43200000');
});

test('every fault can happen at the cursor, is listed, and can be taken back', async () => {
  const faults = page.locator('#faults button');
  const before = await page.textContent('#totals');
  await page.focus('#cursor');
  for (let at = 0; at < 20; at += 1) await page.keyboard.press('ArrowRight');
  for (let at = 0; at < (await faults.count()); at += 1) await running(() => faults.nth(at).click());
  assert.equal(await page.locator('#fault-list li').count(), await faults.count());
  assert.ok(await page.locator('#run-problem').isHidden(), await page.textContent('#run-problem'));
  assert.notEqual(await page.textContent('#totals'), before);
  while ((await page.locator('#fault-list li').count()) > 0) await running(() => page.locator('#fault-list button').first().click());
  assert.equal(await page.textContent('#totals'), before);
});

test('a run that nobody waits for any more is given up, and the page stays responsive', async () => {
  await page.selectOption('#span', { label: '365 d' });
  await page.waitForSelector('#simulation[aria-busy]');
  await page.waitForTimeout(300);
  await page.selectOption('#span', { label: '1 h' });
  const answered = await page.evaluate(() => new Promise((resolve) => {
    const begun = performance.now();
    requestAnimationFrame(() => setTimeout(() => resolve(performance.now() - begun)));
  }));
  assert.ok(answered < 1000, `${answered} ms`);
  assert.match(await visit.simulated(), /^1 h simulated/);
});
