// The built page in a real browser.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, afterEach, before, beforeEach, test } from 'node:test';
import { browser, serve } from './page.mjs';

const SHARD = '3f0c2a52-7f5e-4f0d-9d53-0a4f7f1c9b21';
const COUNT = '#knob-wal_compact_trigger_count';

let site, chromium, page, complaints, addresses;

before(async () => {
  site = await serve();
  chromium = await browser();
});

after(async () => {
  await chromium?.close();
  site?.close();
});

beforeEach(async () => {
  await open({});
});

afterEach(async () => {
  assert.deepEqual(complaints, [], 'the browser complains');
  await page.context().close();
});

/** Opens the page; whatever the browser complains about fails the test. */
async function open(options) {
  await page?.context().close();
  const context = await chromium.newContext({ viewport: { width: 1280, height: 900 }, ...options });
  page = await context.newPage();
  [complaints, addresses] = [[], []];
  page.on('console', (message) => ['error', 'warning'].includes(message.type()) && complaints.push(message.text()));
  page.on('pageerror', (error) => complaints.push(String(error)));
  page.on('request', (request) => addresses.push(request.url()));
  await page.goto(site.address);
  await page.waitForSelector('table');
}

/** The verdict's word for one decision of the example's first shard. */
function verdict(decision, shard = SHARD) {
  const group = page.locator('tbody', { hasText: `Shard ${shard}` });
  return group.locator('tr', { has: page.locator('th', { hasText: decision }) }).locator('.badge').textContent();
}

const stale = () => page.locator('.outdated').isVisible();

test('the example shows its verdicts, reasons and drawing', async () => {
  assert.equal(await verdict('Fold'), 'Due');
  assert.match(await page.textContent('#summary'), /^3 due, 6 not due, 1 held, 1 off\./);
  const table = await page.textContent('table');
  for (const part of ['memwal_compaction 5..8, 64 MiB', 'SSTables 4 ≥ 4', 'Waits for index body_idx', 'unmeasured, 1 GiB needed']) {
    assert.ok(table.includes(part), `the table does not say \`${part}\``);
  }
  assert.match(await page.textContent('#drawing'), /sstables +\.\.\.\.#### /);
});

test('raising the count trigger turns the fold off, and back to defaults turns it on again', async () => {
  await page.fill(COUNT, '5');
  assert.equal(await verdict('Fold'), 'Not due');
  assert.equal(await page.textContent('#settings-text'), 'wal_compact_trigger_count = 5');
  await page.click('#defaults');
  assert.equal(await verdict('Fold'), 'Due');
  assert.equal(await page.inputValue(COUNT), '4');
  assert.ok(await page.locator('#settings').isHidden());
});

test('the form has every knob of the planner, each with its default and help', async () => {
  const recorded = new URL('../../host/corpus/describe.answer.json', import.meta.url);
  const { knobs } = JSON.parse(readFileSync(recorded, 'utf8')).ok;
  const fields = page.locator('.knob');
  assert.equal(await fields.count(), knobs.length);
  for (const { key, text, help } of knobs) {
    const field = page.getByLabel(key, { exact: true });
    assert.equal(await field.inputValue(), text);
    assert.ok((await fields.filter({ has: field }).textContent()).includes(help), key);
  }
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
    [JSON.stringify(example), new RegExp(SHARD)],
  ];
  for (const [text, message] of cases) {
    await page.fill('#facts', text);
    assert.match(await page.textContent('#facts-error'), message);
    assert.equal(await page.getAttribute('#facts', 'aria-invalid'), 'true');
    assert.ok(await stale());
  }
  await page.fill('#facts', '');
  assert.match(await page.textContent('#summary'), /^No facts yet/);
  assert.equal(await page.locator('table').count(), 0);
  await page.click('#example');
  assert.equal(await verdict('Fold'), 'Due');
});

test('time alone makes the fold due at the moment the verdict names', async () => {
  const other = 'a1b8d7e4-2c39-4b7e-8a10-5de1f2c3b4a5';
  assert.equal(await verdict('Fold', other), 'Not due');
  await page.click('text=Go there');
  assert.equal(await page.inputValue('#now'), '2026-01-22T11:00');
  assert.equal(await verdict('Fold', other), 'Due');
  await page.click('text=−1 h');
  assert.equal(await verdict('Fold', other), 'Not due');
});

test('by force every SSTable is folded', async () => {
  await page.selectOption('#trigger', 'forced');
  assert.equal(await verdict('Fold', 'a1b8d7e4-2c39-4b7e-8a10-5de1f2c3b4a5'), 'Due');
});

test('a file is read, whether it is opened or dropped', async () => {
  const facts = (table) => JSON.stringify({ table, version: 1 });
  await page.setInputFiles('#file', { name: 'facts.json', mimeType: 'application/json', buffer: Buffer.from(facts('opened')) });
  await page.waitForSelector('text=Table opened, version 1');
  await page.evaluate((text) => {
    const dataTransfer = new DataTransfer();
    dataTransfer.items.add(new File([text], 'facts.json'));
    document.body.dispatchEvent(new DragEvent('drop', { dataTransfer, bubbles: true, cancelable: true }));
  }, facts('dropped'));
  await page.waitForSelector('text=Table dropped, version 1');
});

test('numbers beyond 2^53 reach the planner as they were typed', async () => {
  await page.fill('#facts', '{"table":"t","version":18446744073709551615}');
  assert.match(await page.textContent('#drawing'), /version 18446744073709551615/);
});

test('a key of the table that is not followed is told, and why', async () => {
  const overrides = { 'caretaker.colour': '1' };
  await page.fill('#facts', JSON.stringify({ table: 't', version: 1, overrides }));
  const told = page.locator('tbody', { hasText: 'not followed' });
  assert.match(await told.textContent(), /caretaker\.colour.*is not a setting/s);
});

test('markup in facts is shown as text', async () => {
  await page.fill('#facts', JSON.stringify({ table: '<img src=x onerror=alert(1)>', version: 1 }));
  assert.match(await page.textContent('table'), /<img src=x/);
  assert.equal(await page.locator('img').count(), 0);
});

test('nothing but the page’s own files is asked for, and it goes on without a network', async () => {
  assert.ok(addresses.length > 0 && addresses.every((address) => address.startsWith(site.address)), String(addresses));
  await page.context().setOffline(true);
  await page.fill(COUNT, '5');
  assert.equal(await verdict('Fold'), 'Not due');
});

test('every field and button can be reached and used by keyboard', async () => {
  const reached = new Set();
  const wanted = await page.locator('input, select, textarea, button:not([disabled]), [tabindex="0"]').count();
  for (let at = 0; at < wanted * 2; at += 1) {
    await page.keyboard.press('Tab');
    reached.add(await page.evaluate(() => [...document.querySelectorAll('*')].indexOf(document.activeElement)));
  }
  const focusable = await page.evaluate(() => {
    const all = [...document.querySelectorAll('*')];
    const shown = 'input, select, textarea, button:not([disabled]), [tabindex="0"]';
    return all.flatMap((element, at) => (element.matches(shown) && element.checkVisibility() ? [at] : []));
  });
  assert.ok(focusable.length > 15);
  assert.deepEqual(focusable.filter((at) => !reached.has(at)), []);
  await page.focus('#example');
  await page.fill('#facts', '');
  await page.focus('#example');
  await page.keyboard.press('Enter');
  assert.equal(await verdict('Fold'), 'Due');
});

for (const width of [320, 390, 1280]) {
  for (const colorScheme of ['light', 'dark']) {
    test(`at ${width} px in ${colorScheme} nothing sticks out, and text stands out from its ground`, async () => {
      await open({ viewport: { width, height: 800 }, colorScheme });
      await page.fill(COUNT, '50');
      await page.fill('#facts', '{}');
      assert.ok((await page.evaluate('document.documentElement.scrollWidth')) <= width);
      assert.deepEqual(await page.evaluate(faint), []);
    });
  }
}

/** In the browser: texts with less contrast than WCAG AA asks for (4.5 to 1). */
function faint() {
  const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const rgba = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const luminance = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map((c) => ((c / 255 + 0.055) / 1.055) ** 2.4);
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const ground = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = rgba(getComputedStyle(at).backgroundColor);
      if (colour[3] === 255) return colour;
    }
    return [255, 255, 255];
  };
  const texts = [...document.querySelectorAll('body *')].filter(
    (element) =>
      element.checkVisibility() &&
      !element.matches(':disabled') &&
      [...element.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.data.trim()),
  );
  return texts.flatMap((element) => {
    const [a, b] = [rgba(getComputedStyle(element).color), ground(element)].map(luminance).sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    return ratio < 4.5 ? [`${element.localName}.${element.className} ${element.textContent.slice(0, 20)} ${ratio.toFixed(2)}`] : [];
  });
}
