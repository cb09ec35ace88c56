/**
 * `npm run abuse [-- word …] [--long] [--json]`: commits the abuses whose name contains one of the words (by default all), and
 * prints the observations. `--long` includes the long ones. The exit code is 1 when a promise was broken.
 */
import { parseArgs } from 'node:util';
import { messageOf } from '../../src/core/fault.ts';
import { clockAbuses } from './clocks.ts';
import { fairnessAbuses, turningAbuses } from './fairness.ts';
import { guardAbuses } from './guard.ts';
import { receiverAbuses } from './receivers.ts';
import { workerAbuses } from './workers.ts';

const { values: flags, positionals: words } = parseArgs({
  options: { long: { type: 'boolean' }, json: { type: 'boolean' } },
  allowPositionals: true,
});
const all = [receiverAbuses, clockAbuses, guardAbuses, workerAbuses, fairnessAbuses, turningAbuses];
const abuses = all
  .flat()
  .filter(
    ({ name, isLong }) =>
      (isLong !== true || flags.long === true) &&
      (words.length === 0 || words.some((word) => name.includes(word))),
  );
const rows: { promise: string; seen: string; tookMs: number }[] = [];
const broken: string[] = [];
for (const { name, commit } of abuses) {
  process.stderr.write(`${name} …\n`);
  const startedAt = performance.now();
  try {
    const seen = await commit();
    rows.push({ promise: name, seen, tookMs: Math.round(performance.now() - startedAt) });
  } catch (error) {
    broken.push(`${name}: ${messageOf(error)}`);
  }
}
if (flags.json === true) process.stdout.write(`${JSON.stringify(rows, null, 2)}\n`);
else console.table(rows);
for (const promise of broken) process.stderr.write(`✖ ${promise}\n`);
process.stderr.write(`${abuses.length} abuses, ${broken.length} promises broken\n`);
process.exit(broken.length > 0 || abuses.length === 0 ? 1 : 0);
