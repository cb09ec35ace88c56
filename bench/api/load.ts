/**
 * Load by wrk (Debian: wrk), on the same machine: as many requests as there are answers, over connections that stay.
 */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';

export type Load = { requestsPerSecond: number; p50Ms: number; p99Ms: number };

export const CONNECTIONS = 64;
/** Longer than any answer takes on a machine that others use too. */
const ANSWER_SECONDS_MAX = 30;

/** @throws Error when an answer was no 2xx, or a connection failed. */
export async function load(url: string, seconds: number): Promise<Load> {
  const words = [
    '-t1',
    `-c${CONNECTIONS}`,
    `-d${seconds}s`,
    '--latency',
    '--timeout',
    String(ANSWER_SECONDS_MAX),
    url,
  ];
  const { stdout } = await promisify(execFile)('wrk', words);
  if (/Non-2xx|Socket errors/.test(stdout)) throw new Error(`not every request was answered: ${stdout}`);
  return {
    requestsPerSecond: Math.round(Number(find(stdout, /Requests\/sec:\s+([\d.]+)/)[1])),
    p50Ms: percentileOf(stdout, 50),
    p99Ms: percentileOf(stdout, 99),
  };
}

function percentileOf(text: string, percent: number): number {
  const [, value, unit = ''] = find(text, new RegExp(`^\\s+${percent}%\\s+([\\d.]+)(us|ms|s)\\s*$`, 'm'));
  return Number((Number(value) * ({ us: 0.001, ms: 1, s: 1000 }[unit] ?? Number.NaN)).toFixed(2));
}

function find(text: string, pattern: RegExp): RegExpExecArray {
  const match = pattern.exec(text);
  if (match === null) throw new Error(`wrk did not say ${pattern}: ${text}`);
  return match;
}
