/**
 * Describes the machine and the software versions of a measurement.
 */
import { execFileSync } from 'node:child_process';
import { cpus, loadavg, totalmem } from 'node:os';

export type Machine = {
  processor: string;
  cores: number;
  memoryGiB: number;
  load: number;
  node: string;
  commit: string;
};

/** `commit` ends in `+` when the work tree has uncommitted changes. */
export function describeMachine(): Machine {
  const git = (...words: string[]) => execFileSync('git', words, { encoding: 'utf8' }).trim();
  const isDirty = git('status', '--porcelain', '--', 'src', 'package.json', 'package-lock.json') !== '';
  return {
    processor: cpus()[0]?.model.trim() ?? 'unknown',
    cores: cpus().length,
    memoryGiB: Math.round(totalmem() / 2 ** 30),
    load: Number(loadavg()[0]?.toFixed(1)),
    node: process.version,
    commit: `${git('rev-parse', '--short=12', 'HEAD')}${isDirty ? '+' : ''}`,
  };
}

/** Processor time of all cores since the machine started, including that of other programs. */
export function readBusySeconds(): number {
  const busyMs = cpus().map(({ times: { user, nice, sys, irq } }) => user + nice + sys + irq);
  return busyMs.reduce((sum, ms) => sum + ms, 0) / 1000;
}
