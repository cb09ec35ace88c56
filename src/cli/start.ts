/**
 * `chainbell start`: runs the service until a signal stops it.
 */
import { type Command, InvalidArgumentError } from 'commander';
import { type Role, roles } from '../app/roles.ts';
import type { ServiceOptions } from '../app/service.ts';
import type { Config } from '../config/schema.ts';
import { abortOf } from '../core/abort.ts';
import { Fault, messageOf } from '../core/fault.ts';
import { collectGarbage } from '../core/garbage.ts';
import { withConfig } from './exit.ts';
import { untilInterrupted } from './interrupt.ts';
import { barDisplay, createStatusLine } from './status-line.ts';

const EXIT_MS = 500;

type Flags = { config?: string; role?: Role[] };

export function addStartCommand(program: Command): void {
  program
    .command('start')
    .description('run the service')
    .option('--config <file>', 'configuration file (default: chainbell.yaml if it exists)')
    .option(
      '--role <list>',
      `roles of this process, separated by commas: ${roles.join(', ')} (default: all)`,
      parseRoles,
    )
    .addHelpText('after', '\nExample:\n  $ npm run --silent chainbell -- start --config chainbell.yaml')
    .action((flags: Flags) => start(flags));
}

async function start(flags: Flags): Promise<void> {
  try {
    await untilInterrupted((signal) => withConfig(flags, (config) => runUntil(signal, config, flags.role)));
  } finally {
    // A stop that was cut may leave something that keeps the process alive.
    setTimeout(() => process.exit(), EXIT_MS).unref();
  }
}

async function runUntil(signal: AbortSignal, config: Config, role: Role[] | undefined): Promise<void> {
  const { startService } = await import('../app/service.ts');
  const terminal =
    process.stderr.isTTY && config.log.format !== 'json' ? await onTerminal(config) : undefined;
  const service = await startService(config, {
    signal,
    ...(role !== undefined && { roles: role }),
    ...terminal,
  });
  if (terminal !== undefined && config.http.console && service.apiUrl !== '')
    process.stderr.write(`\nConsole: ${service.apiUrl}/console\n\n`);
  // The start leaves 30 MiB of garbage, which V8 would keep until the service has made much more of it.
  if (service.database.kind === 'embedded') collectGarbage();
  const bug = await Promise.race([abortOf(signal), service.failed]);
  await service.stop();
  // Remove the progress bar of an interrupted backfill, so that the shell prompt starts on an empty line.
  terminal?.display.end();
  if (bug === undefined) return;
  if (bug instanceof Fault) throw bug;
  process.stderr.write(`chainbell: ${messageOf(bug)}\n${bug.stack ?? ''}\n`);
  process.exitCode = 1;
}

/** Shows the progress of a backfill as a bar below the log. */
async function onTerminal(config: Config): Promise<Required<Pick<ServiceOptions, 'log' | 'display'>>> {
  const { createProgramLog } = await import('../app/program-log.ts');
  const statusLine = createStatusLine(process.stderr);
  return { log: createProgramLog(config, {}, statusLine), display: barDisplay(statusLine) };
}

function parseRoles(text: string): Role[] {
  return text.split(',').map((name) => {
    const role = roles.find((known) => known === name.trim());
    if (role === undefined)
      throw new InvalidArgumentError(`'${name}' is not a role. The roles are ${roles.join(', ')}.`);
    return role;
  });
}
