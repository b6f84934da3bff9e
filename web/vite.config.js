import { defineConfig } from 'vite';

export default defineConfig({
  // Relative addresses: the page works below any path.
  base: './',
  worker: { format: 'es' },
  build: {
    target: 'es2022',
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    rollupOptions: { input: ['index.html', 'fleet.html'] },
  },
});
