/**
 * `chainbell processes`: lists the processes of a deployment, as each has reported itself to the database. It needs none to run.
 */
import type { Command } from 'commander';
import type { Database } from '../store/db/db.ts';
import { processTable } from './deployment-tables.ts';
import { addStoreCommand, type Flags, withStore, writeJson } from './secret-store.ts';
import { seeProcesses } from './see-processes.ts';

const REQUIRED_ROLES = ['follower', 'delivery', 'api'];

export function addProcessesCommand(program: Command): void {
  addStoreCommand(program, 'processes', 'list the processes of the deployment, from the database')
    .addHelpText('after', '\nExample:\n  $ npm run --silent chainbell -- processes')
    .action((flags: Flags) => withStore(flags, ({ database }) => run(database, flags)));
}

async function run(database: Database, flags: Flags): Promise<void> {
  const { describeProcess } = await import('../app/deployment-status.ts');
  const seen = await seeProcesses(database);
  const running = seen.filter(({ state }) => state === 'running');
  const leader = running
    .filter(({ follower }) => follower?.leads === true)
    .toSorted((one, other) => one.silentMs - other.silentMs)[0];
  const processes = seen.map((one) => ({ ...describeProcess(one, leader), host: one.host, pid: one.pid }));
  if (flags.json === true) return writeJson(processes);
  process.stdout.write(processTable(processes, ['HOST', 'PID'], ({ host, pid }) => [host, String(pid)]));
  const absent = REQUIRED_ROLES.filter((role) => !running.some(({ roles }) => roles.includes(role)));
  const isLeaderless = leader === undefined && !absent.includes('follower');
  const notes = [
    ...absent.map(absentText),
    ...(isLeaderless ? ['no follower leads, so none follows the chain'] : []),
  ];
  process.stderr.write(`${[runningText(running.length, processes.length), ...notes].join('; ')}\n`);
}

function runningText(running: number, all: number): string {
  if (all === 0) return 'no process has run on this database';
  return `${running} of ${all} known processes ${running === 1 ? 'runs' : 'run'}`;
}

const absentText = (role: string) => `none has the role ${role}`;
