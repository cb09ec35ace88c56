export default {
  preset: 'node-server',
  srcDir: '.',
  compatibilityDate: '2026-01-01',
};
