import { defineConfig } from 'vite';

export default defineConfig({
  // Relative addresses: the page works below any path.
  base: './',
  build: { target: 'es2022', assetsInlineLimit: 0, modulePreload: { polyfill: false } },
});
