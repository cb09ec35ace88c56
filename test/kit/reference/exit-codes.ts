/**
 * The table of exit codes in docs/reference/commands.md. The compiler demands a meaning for each code of the program.
 */
import { exitCodes } from '../../../src/cli/exit.ts';
import { markdownTable } from './table.ts';

const MEANINGS: Record<keyof typeof exitCodes, string> = {
  usage: 'wrong usage',
  unavailable:
    'the database or the nodes did not answer, or the database role lacks a privilege: `start` retries for 60 s, other commands end at once. `start`: several servers of `database.url` accept writes, or a command has the folder of the embedded database for longer than that. All commands but `start`: standard output cannot be written, for example because a disk is full. `keys create`, `keys rotate`, `secrets rotate`: nothing read what was made. `status`: no service answers. `verify`, `repair`: a part of the range was not compared, because no node served it or too few answered. On a database without blocks they compare nothing and end with 0',
  tryAgain:
    '`migrate --check`: a migration is pending. `verify`, `repair`: a reorg changed the range meanwhile, or you interrupted the command. `points explain`, `points import`, `watchers delete`, `migrate --from-embedded`: you interrupted it. `status`: degraded or holding',
  config:
    "configuration: a wrong file, another chain than the database's or the nodes', a schema that a newer version broke for this one, a folder in use (by another service, for `start`), a port in use, another secret, a pooler in transaction mode, a move of the embedded database that is not complete. Also a key or watcher whose state doesn't allow the command, such as fewer slices than it has",
};

export function renderExitCodes(): string {
  const names = Object.keys(exitCodes) as (keyof typeof exitCodes)[];
  return markdownTable(
    ['Exit code', 'Meaning'],
    [
      ['0', 'done; `start`: stopped as asked (SIGINT, SIGTERM or SIGHUP; a second signal is harmless)'],
      [
        '1',
        '`verify`: something differs. `repair`: something is left to repair. Other commands: a bug; standard error has the message and its stack',
      ],
      ...names
        .toSorted((one, other) => exitCodes[one] - exitCodes[other])
        .map((name) => [String(exitCodes[name]), MEANINGS[name]]),
    ],
  );
}
