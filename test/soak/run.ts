/**
 * `npm run soak -- [--minutes N] [--seed N] [--json] [--save]`: runs the soak (test/soak/soak.ts), with progress on standard error.
 * `--save` writes bench/results/soak.json. The exit code is 1 when a promise was broken.
 */
import { mkdir, writeFile } from 'node:fs/promises';
import { loadavg } from 'node:os';
import { parseArgs } from 'node:util';
import { describeMachine } from '../../bench/machine.ts';
import { runSoak } from './soak.ts';

const { values: flags } = parseArgs({
  options: {
    minutes: { type: 'string', default: '60' },
    seed: { type: 'string', default: '1' },
    json: { type: 'boolean' },
    save: { type: 'boolean' },
  },
});
const [minutes, seed] = [Number(flags.minutes), Number(flags.seed)];
if (!(minutes > 0) || !Number.isSafeInteger(seed)) {
  process.stderr.write('--minutes is a number above 0, --seed is a whole number\n');
  process.exit(64);
}

// An exit ends all parts, which a signal alone would leave behind.
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => process.exit(130));

const machine = describeMachine();
const onLine = (line: string) =>
  process.stderr.write(`${new Date().toISOString().slice('YYYY-MM-DDT'.length, -5)} ${line}\n`);
const result = await runSoak({ minutes, seed, onLine });
const report = {
  scenario: 'soak',
  machine,
  conditions: { minutes, seed, loadAtEnd: Number(loadavg()[0]?.toFixed(1)) },
  ...result,
};
if (flags.json === true) process.stdout.write(`${JSON.stringify(report, null, 2)}\n`);
else {
  console.table(result.flatness);
  const { flatness: _, strikes, problems, settledSeconds, ...figures } = result;
  console.table({ ...figures, settledSeconds: settledSeconds.median, slowestSeconds: settledSeconds.max });
  console.table(strikes);
  for (const problem of problems) process.stderr.write(`✖ ${problem}\n`);
}
if (flags.save === true) {
  const folder = new URL('../../bench/results/', import.meta.url);
  await mkdir(folder, { recursive: true });
  await writeFile(new URL('soak.json', folder), `${JSON.stringify(report, null, 2)}\n`);
}
process.exit(result.problems.length === 0 ? 0 : 1);
