/**
 * The result of the capacity model as plain text.
 */

import { counted } from '../core/plural.ts';
import type { Capacity } from '../domain/capacity.ts';
import { table } from './table.ts';

export function renderCapacity({
  load,
  parts,
  stored,
  steps,
  carriedBy,
  nextLimit,
  measured,
}: Capacity): string {
  const { tps, addresses, deliveries, blockSeconds, receivers, reads, days, databaseCores } = load;
  const lines = [
    `${shown(tps)} transactions/s in a block every ${shown(blockSeconds)} s, ${shown(addresses)} watched addresses, ${shown(deliveries)} webhooks/s to ${counted(receivers, 'receiver')}, ${shown(reads)} cached API reads/s`,
    '',
    table([
      ['PART', 'ROWS WRITTEN/S', 'READS/S', 'WAL', 'SOCKETS', 'CORES', 'MEMORY'],
      ...parts.map(({ part, writes, reads: read, walBytes, sockets, cores, memoryMiB }) => [
        ...[part, shown(writes), shown(read), walBytes === 0 ? '–' : `${shownBytes(walBytes)}/s`],
        ...[shown(sockets), shown(cores), memoryMiB === 0 ? '–' : shownBytes(memoryMiB * 2 ** 20)],
      ]),
    ]),
    `Watched addresses take ${shownBytes(stored.addressBytes)}. Deliveries add ${shownBytes(stored.growthBytesPerDay)} a day, ${shownBytes(stored.historyBytes)} in ${counted(days, 'day')}. WAL: ${shownBytes(stored.walBytesPerDay)} a day.`,
    '',
    table([
      ['STEP', 'CARRIES IT', 'USED', 'TAKES'],
      ...steps.map(({ step, carries, isMeasured, shares, takes }) => [
        step,
        `${carries ? 'yes' : 'no'}${isMeasured ? '' : ', without the overhead of Citus'}`,
        shares.map(({ of, used }) => `${of} ${percent(used)}`).join(', '),
        takes,
      ]),
    ]),
    carriedBy === undefined
      ? `No step carries this load: ${fullOf(steps)} by more than half.`
      : `Smallest step that carries it: ${carriedBy}.`,
    ...(nextLimit === undefined
      ? []
      : [`Next limit: ${nextLimit.of}, at ${shown(nextLimit.at)} times this load.`]),
    `A step carries a load that uses at most half of each measured rate, of one core for the leading follower, and of ${counted(databaseCores, 'core')} of the database. Memory and disk of the database server are not in the model.`,
    `Unit costs were measured on ${measured.processor}, ${counted(measured.cores, 'core')}, ${measured.memoryGiB} GiB, at a load of ${measured.load} (docs/explanation/scale.md).`,
  ];
  return `${lines.join('\n')}\n`;
}

/** What the largest step uses too much of. */
const fullOf = (steps: Capacity['steps']): string =>
  (steps.at(-1)?.shares ?? [])
    .filter(({ used }) => used > 0.5)
    .map(({ of }) => `it uses the ${of}`)
    .join(' and ');

const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];

/** Three significant digits. */
export function shownBytes(bytes: number): string {
  let [value, unit] = [bytes, 0];
  while (value >= 1_024 && unit < UNITS.length - 1) [value, unit] = [value / 1_024, unit + 1];
  return `${shown(value)} ${UNITS[unit]}`;
}

/** Three significant digits, and all digits of a larger number. */
export function shown(value: number): string {
  const rounded = value >= 100 ? Math.round(value) : Number(value.toPrecision(value < 0.01 ? 1 : 3));
  return rounded.toLocaleString('en-US', { maximumSignificantDigits: 21 });
}

export const percent = (part: number): string => `${shown(part * 100)} %`;
