// The built page in a real browser: serves web/dist and opens it in Chromium.

import { createReadStream, existsSync } from 'node:fs';
import { createServer } from 'node:http';
import { extname, join, normalize } from 'node:path';
import { fileURLToPath } from 'node:url';
import { chromium } from 'playwright-core';

const DIST = fileURLToPath(new URL('../dist', import.meta.url));
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

/** Serves the page below a path, since it must not depend on being at the top. */
export async function serve() {
  if (!existsSync(join(DIST, 'index.html'))) throw new Error('there is no web/dist: run `make wasm` first');
  const server = createServer((request, response) => {
    const { pathname } = new URL(request.url, 'http://localhost');
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
