// Where the page is, how it looks and who can use it: origins, offline, keyboard, contrast, sizes.

import assert from 'node:assert/strict';
import { mkdirSync, readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { brotliCompressSync } from 'node:zlib';
import { DIST, Visit, browser, serve } from './page.mjs';

const AXE = readFileSync(new URL('../node_modules/axe-core/axe.min.js', import.meta.url), 'utf8');
const ARTEFACTS = fileURLToPath(new URL('artefacts/', import.meta.url));
const COUNT = '#knob-wal_compact_trigger_count';
const SHARD = '3f0c2a52-7f5e-4f0d-9d53-0a4f7f1c9b21';
const BUNDLE_BYTES_MAX = 400 * 1024;

let site, chromium;

before(async () => {
  site = await serve();
  chromium = await browser();
  mkdirSync(ARTEFACTS, { recursive: true });
});

after(async () => {
  await chromium?.close();
  site?.close();
});

/** A visit that ends with the test, and fails it when the browser complained. */
async function visiting(work, options, address = site.address) {
  const visit = await Visit.to(chromium, address, options);
  try {
    await work(visit, visit.page);
    assert.deepEqual(visit.complaints, [], 'the browser complains');
  } finally {
    await visit.close();
  }
}

test('nothing but the page’s own files is asked for, and all of it goes on without a network', () => visiting(async (visit, page) => {
  await visit.simulated();
  assert.ok(visit.addresses.length > 0 && visit.addresses.every((address) => address.startsWith(site.address)), String(visit.addresses));
  const before = visit.addresses.length;
  await page.context().setOffline(true);
  await page.fill(COUNT, '5');
  assert.equal(await visit.verdict('fold', SHARD), 'Not due');
  await page.selectOption('#preset', { index: 2 });
  await visit.simulated();
  assert.equal(visit.addresses.length, before);
}));

// By Brotli, as hosts of static files send it.
test('the pages have at most 400 KiB in all, compressed', (context) => {
  const files = readdirSync(DIST, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile());
  const sizes = files.map(({ name, parentPath }) => [brotliCompressSync(readFileSync(join(parentPath, name))).length, name]);
  const sum = sizes.reduce((total, [bytes]) => total + bytes, 0);
  for (const [bytes, name] of sizes) context.diagnostic(`${bytes} ${name}`);
  assert.ok(sum <= BUNDLE_BYTES_MAX, `${sum} bytes`);
});

test('the first view is there at once', (context) => visiting(async (visit, page) => {
  const shown = await page.evaluate(() => Math.round(performance.now()));
  context.diagnostic(`verdicts after at most ${shown} ms, with a cold cache`);
}));

test('what may run and load is what the page brought with it', () => visiting(async (visit, page) => {
  const policy = await page.getAttribute('meta[http-equiv="Content-Security-Policy"]', 'content');
  for (const part of ["default-src 'none'", "script-src 'self' 'wasm-unsafe-eval'", "style-src 'self'", "connect-src 'self'"]) assert.ok(policy.includes(part));
  assert.ok(!policy.includes('unsafe-inline'));
  assert.equal(await page.locator('script:not([src])').count(), 0);
}));

test('every field and button can be reached and used by keyboard', () => visiting(async (visit, page) => {
  await visit.simulated();
  await visit.unfold();
  const candidates = 'a[href], input, select, textarea, summary, button:not([disabled]), [tabindex="0"]';
  const wanted = await page.evaluate((shown) => {
    const all = [...document.querySelectorAll('*')];
    // Of a group of radio buttons Tab reaches the one that is chosen.
    return all.flatMap((element, at) => (element.matches(shown) && element.checkVisibility() && !element.disabled && !(element.type === 'radio' && !element.checked) ? [at] : []));
  }, candidates);
  assert.ok(wanted.length > 60);
  const reached = new Set();
  for (let at = 0; at < wanted.length * 3 && wanted.some((one) => !reached.has(one)); at += 1) {
    await page.keyboard.press('Tab');
    reached.add(await page.evaluate(() => [...document.querySelectorAll('*')].indexOf(document.activeElement)));
  }
  assert.deepEqual(wanted.filter((at) => !reached.has(at)), []);
  await visit.type('');
  await page.focus('#example');
  await page.keyboard.press('Enter');
  assert.equal(await visit.verdict('fold', SHARD), 'Due');
  await page.focus('#cursor');
  const before = await page.textContent('#cursor-moment');
  await page.keyboard.press('ArrowRight');
  assert.notEqual(await page.textContent('#cursor-moment'), before);
}));

for (const colorScheme of ['light', 'dark']) {
  test(`axe finds nothing serious in ${colorScheme}, in any state of the page`, () => visiting(async (visit, page) => {
    await visit.simulated();
    const check = async (state) => {
      await page.evaluate(AXE);
      const found = await page.evaluate(() => globalThis.axe.run());
      const serious = found.violations.filter(({ impact }) => ['serious', 'critical'].includes(impact));
      assert.deepEqual(serious.map(({ id, nodes }) => [state, id, nodes[0].html, nodes[0].failureSummary]), []);
    };
    await visit.unfold();
    await check('as it opens');
    await page.click('#compare');
    await page.fill(COUNT, '50');
    await visit.simulated();
    await page.click('#fault-worker_dies');
    await page.click('#share');
    await page.waitForSelector('#link:visible');
    await check('comparing');
    await visit.type('{}');
    await check('with facts that are none');
  }, { colorScheme }));
}

for (const width of [320, 360, 768, 1440]) {
  for (const colorScheme of ['light', 'dark']) {
    test(`at ${width} px in ${colorScheme} nothing sticks out, and text stands out from its ground`, () => visiting(async (visit, page) => {
      await visit.simulated();
      await page.screenshot({ path: join(ARTEFACTS, `first-${width}-${colorScheme}.png`) });
      await page.screenshot({ path: join(ARTEFACTS, `page-${width}-${colorScheme}.png`), fullPage: true });
      await page.click('#compare');
      await page.fill(COUNT, '50');
        await visit.simulated();
      await page.screenshot({ path: join(ARTEFACTS, `compare-${width}-${colorScheme}.png`), fullPage: true });
      assert.ok((await page.evaluate('document.documentElement.scrollWidth')) <= width);
      await visit.type('{}');
      assert.ok((await page.evaluate('document.documentElement.scrollWidth')) <= width);
      assert.deepEqual(await page.evaluate(faint), []);
    }, { viewport: { width, height: 800 }, colorScheme }));
  }
}

test('nothing jumps while a knob is turned', () => visiting(async (visit, page) => {
  await visit.simulated();
  // What would change each verdict comes a moment after the verdicts.
  await page.waitForFunction(() => !document.body.textContent.includes('Asking the planner'));
  const tops = () => page.evaluate(() => ['#what-if', '#simulation', '#charts', '#gantt', '#totals'].map((id) => document.querySelector(id).getBoundingClientRect().top + scrollY));
  const before = await tops();
  await page.fill(COUNT, 'x');
  assert.deepEqual(await tops(), before);
}));

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
