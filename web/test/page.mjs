// The built page in a real browser: serves web/dist and opens it in Chromium.

import { createReadStream, existsSync } from 'node:fs';
import { createServer } from 'node:http';
import { extname, join, normalize } from 'node:path';
import { fileURLToPath } from 'node:url';
import { chromium } from 'playwright-core';

export const DIST = fileURLToPath(new URL('../dist', import.meta.url));
const TYPES = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript',
  '.css': 'text/css',
  '.svg': 'image/svg+xml',
  '.wasm': 'application/wasm',
};
const CHROMIUM = process.env.CHROMIUM ?? '/usr/bin/chromium';
// Nothing of its own accord: no sandbox (it needs rights a container lacks), no updates, no sync.
const ARGUMENTS = [
  '--no-sandbox',
  '--disable-gpu',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
];

/** Serves the page below a path, since it must not depend on being at the top. `routes` answers other paths. */
export async function serve(routes = {}) {
  if (!existsSync(join(DIST, 'index.html'))) throw new Error('there is no web/dist: run `make wasm` first');
  const server = createServer((request, response) => {
    const { pathname } = new URL(request.url, 'http://localhost');
    if (Object.hasOwn(routes, pathname)) {
      const { status = 200, text } = routes[pathname];
      response.writeHead(status, { 'content-type': 'application/json' }).end(text);
      return;
    }
    const file = join(DIST, normalize(pathname.replace(/^\/preview/, '')).replace(/\/$/, '/index.html'));
    if (!pathname.startsWith('/preview/') || !existsSync(file)) {
      response.writeHead(404).end();
      return;
    }
    response.writeHead(200, { 'content-type': TYPES[extname(file)] ?? 'application/octet-stream' });
    createReadStream(file).pipe(response);
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  return { address: `http://127.0.0.1:${server.address().port}/preview/`, close: () => server.close() };
}

export async function browser() {
  if (!existsSync(CHROMIUM)) {
    throw new Error(`there is no browser at ${CHROMIUM}: install the package chromium, or set CHROMIUM to one`);
  }
  return chromium.launch({ executablePath: CHROMIUM, args: ARGUMENTS });
}

/** A page that is open, with all that the browser complained about and asked for. */
export class Visit {
  complaints = [];
  addresses = [];

  /** Opens the page at `address` and waits until its verdicts are there. */
  static async to(chromium, address, options = {}, ready = '.card') {
    const visit = new Visit();
    const context = await chromium.newContext({ viewport: { width: 1280, height: 900 }, timezoneId: 'Europe/Paris', ...options });
    const page = await context.newPage();
    page.on('console', (message) => ['error', 'warning'].includes(message.type()) && visit.complaints.push(message.text()));
    page.on('pageerror', (error) => visit.complaints.push(String(error)));
    page.on('request', (request) => visit.addresses.push(request.url()));
    await page.goto(address);
    await page.waitForSelector(ready);
    visit.page = page;
    return visit;
  }

  close() {
    return this.page.context().close();
  }

  /** The card of a decision, of the table or of a shard. */
  card(decision, shard) {
    const of = shard === undefined ? ':not([data-shard])' : `[data-shard="${shard}"]`;
    return this.page.locator(`.card[data-decision="${decision}"]${of}`);
  }

  /** The card's word; of the policy shown, where two are compared. */
  verdict(decision, shard) {
    return this.card(decision, shard).locator('.badge').first().textContent();
  }

  /** Facts as somebody types them. */
  async type(facts) {
    await this.page.locator('#facts-editor').evaluate((details) => { details.open = true; });
    await this.page.fill('#facts', typeof facts === 'string' ? facts : JSON.stringify(facts));
  }

  /** Every knob's group is open. */
  unfold() {
    return this.page.evaluate(() => { for (const details of document.querySelectorAll('details')) details.open = true; });
  }

  /** Waits until no simulation runs any more. */
  async simulated() {
    await this.page.waitForFunction(() => {
      const part = document.querySelector('#simulation');
      return !part.hasAttribute('aria-busy') && /simulated in/.test(part.querySelector('#run-status').textContent);
    });
    return this.page.textContent('#run-status');
  }

  /** What was downloaded by a click: its name and its text. */
  async download(button) {
    const [file] = await Promise.all([this.page.waitForEvent('download'), this.page.click(button)]);
    const parts = [];
    for await (const part of await file.createReadStream()) parts.push(part);
    return { name: file.suggestedFilename(), text: Buffer.concat(parts).toString('utf8') };
  }
}
