/**
 * Load from wrk (Debian package: wrk) on the same machine. Each keep-alive connection sends its next request as soon as it has
 * an answer.
 */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';

export type Load = { requestsPerSecond: number; p50Ms: number; p99Ms: number };

export const CONNECTIONS = 64;
/** Longer than any response takes, even on a machine that is busy with other work. */
const ANSWER_SECONDS_MAX = 30;

/** @throws Error when a response was not 2xx or a connection failed. */
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
