/**
 * `npm run kills [-- --rounds N] [--seed N] [--json] [--save]`: runs N rounds of kills (test/abuse/kills.ts) and prints a table
 * of their results by kind. `--save` writes bench/results/kills.json. The exit code is 1 when a promise was broken. The seed
 * and the number of the round repeat the failure.
 */
import { mkdir, writeFile } from 'node:fs/promises';
import { parseArgs } from 'node:util';
import { describeMachine } from '../../bench/machine.ts';
import { messageOf } from '../../src/core/fault.ts';
import { type Round, setKillStage } from './kills.ts';

const ROUNDS = '15';
const { values: flags } = parseArgs({
  options: {
    rounds: { type: 'string', default: ROUNDS },
    seed: { type: 'string', default: '1' },
    json: { type: 'boolean' },
    save: { type: 'boolean' },
  },
});
const [count, seed] = [Number(flags.rounds), Number(flags.seed)];
if (!Number.isSafeInteger(count) || count < 1 || !Number.isSafeInteger(seed)) {
  process.stderr.write('--rounds and --seed are whole numbers\n');
  process.exit(64);
}

const rounds: Round[] = [];
let problem: string | undefined;
{
  await using stage = await setKillStage(seed);
  try {
    while (rounds.length < count) {
      const row = await stage.round();
      rounds.push(row);
      const { round, strike, transfers, repeated, recoveredMs } = row;
      process.stderr.write(
        `${round}/${count} ${strike}: ${transfers} transfers, ${repeated} repeated, told after ${recoveredMs} ms\n`,
      );
    }
  } catch (error) {
    problem = `round ${rounds.length + 1} of seed ${seed}: ${messageOf(error)}`;
  }
}

const rows = [...Map.groupBy(rounds, ({ strike }) => strike)].map(([strike, ones]) => ({
  strike,
  rounds: ones.length,
  ...totals(ones),
}));
if (flags.json === true) process.stdout.write(`${JSON.stringify(rounds, null, 2)}\n`);
else console.table([...rows, { strike: 'all', rounds: rounds.length, ...totals(rounds) }]);
if (flags.save === true && problem === undefined) {
  const folder = new URL('../../bench/results/', import.meta.url);
  await mkdir(folder, { recursive: true });
  const result = { scenario: 'kills', machine: describeMachine(), conditions: { rounds: count, seed }, rows };
  await writeFile(new URL('kills.json', folder), `${JSON.stringify(result, null, 2)}\n`);
}
if (problem !== undefined) process.stderr.write(`✖ ${problem}\n`);
process.exit(problem === undefined ? 0 : 1);

function totals(ones: readonly Round[]) {
  const sum = (what: 'transfers' | 'repeated' | 'lost' | 'doubled') =>
    ones.reduce((total, round) => total + round[what], 0);
  const recovered = ones.map(({ recoveredMs }) => recoveredMs).sort((one, other) => one - other);
  return {
    transfers: sum('transfers'),
    repeated: sum('repeated'),
    lost: sum('lost'),
    doubled: sum('doubled'),
    medianMs: recovered[Math.floor(recovered.length / 2)] ?? 0,
    slowestMs: recovered.at(-1) ?? 0,
  };
}
