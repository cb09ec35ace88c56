/**
 * The output of `chainbell points explain` for people: awards, and each rule's verdict on each log.
 */
import type { ExplainedLog, RuleVerdict } from '../audit/explain.ts';
import { decimalText } from '../core/decimal.ts';
import { printableLines } from '../core/terminal-text.ts';
import type { Award } from '../domain/award.ts';

/** The keys of an award's `inputs` and what each means, in the order of the calculation. */
const STEPS: [prefix: string, meaning: (name: string) => string][] = [
  ['event', () => 'event'],
  ['contract', () => 'contract'],
  ['log', () => 'log of the transaction'],
  ['day', () => 'day'],
  ['arg.', (name) => `argument ${name}`],
  ['price.', (name) => `USD for one ${name}`],
  ['price_id.', (name) => `stored row of that price, ${name}`],
  ['computed', () => 'points before multipliers'],
  ['multiplier.', (name) => `multiplier ${name}`],
  ['used.', (name) => `already awarded, ${name}`],
  ['cap.', (name) => `cap, ${name}`],
  ['referred', () => 'referred user'],
  ['points', () => "referred user's points"],
  ['share', () => 'share for the referrer'],
];
/** A longer name of a rule or argument widens its column. */
const LABEL_WIDTH_MIN = 26;
const COLUMN_GAP = 2;

export function describeAward({ rule, version, category, role, user, points, ...award }: Award): string {
  const { awardedAt, block, inputs } = award;
  return `${printableLines([`${rule} version ${version}`])}${rowsOf([
    ['user', role === 'referrer' ? `${user} (referrer)` : user],
    ['category', category],
    ['at', awardedAt.toISOString()],
    ['block', block === undefined ? 'imported' : `${block.number} ${block.hash}`],
    ...stepsOf(inputs),
    ['result', `${decimalText(points)} points`],
  ])}`;
}

export function describeLog({ ordinal, contract, topic, verdicts }: ExplainedLog): string {
  const heading = `log ${ordinal} of ${contract}`;
  if (verdicts.length > 0) return `${heading}\n${verdicts.map(describeVerdict).join('')}`;
  const event = topic === undefined ? 'an anonymous event' : `the event ${topic}`;
  return `${heading}\n  no rule uses ${event}\n`;
}

function describeVerdict({ rule, version, what, message, inputs }: RuleVerdict): string {
  const name = version === undefined ? rule : `${rule} version ${version}`;
  // The text above already shows the inputs of awards, and the heading already says where the log is.
  const { event: _event, contract: _contract, log: _log, ...values } = what === 'awarded' ? {} : inputs;
  const heading = `  ${name}: ${what.replaceAll('_', ' ')}: ${message}`;
  return printableLines([heading]) + rowsOf(stepsOf(values), '    ');
}

function stepsOf(inputs: Readonly<Record<string, string>>): [string, string][] {
  const entries = Object.entries(inputs);
  const isOf = (prefix: string, key: string) =>
    prefix.endsWith('.') ? key.startsWith(prefix) : key === prefix;
  const known = STEPS.flatMap(([prefix, meaning]) =>
    entries
      .filter(([key]) => isOf(prefix, key))
      .map(([key, value]): [string, string] => [meaning(key.slice(prefix.length)), value]),
  );
  return [...known, ...entries.filter(([key]) => !STEPS.some(([prefix]) => isOf(prefix, key)))];
}

function rowsOf(rows: readonly (readonly [string, string])[], indent = '  '): string {
  const width = Math.max(LABEL_WIDTH_MIN, ...rows.map(([label]) => label.length + COLUMN_GAP));
  return printableLines(rows.map(([label, value]) => `${indent}${label.padEnd(width)}${value}`));
}
