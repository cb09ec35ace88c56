/**
 * `chainbell start`: the service, until it is told to stop.
 */
import { type Command, InvalidArgumentError } from 'commander';
import { messageOf } from '../core/fault.ts';
import { type Role, roles, startService } from '../service.ts';
import { withConfig } from './exit.ts';

type Flags = { config?: string; role?: Role[] };

export function addStartCommand(program: Command): void {
  program
    .command('start')
    .description('run the service')
    .option('--config <file>', 'configuration file (default: chainbell.yaml when there is one)')
    .option('--role <list>', `what this process does: ${roles.join(', ')} (default: all of it)`, parseRoles)
    .addHelpText('after', '\nExample:\n  $ npm run --silent chainbell -- start --config chainbell.yaml')
    .action((flags: Flags) => start(flags));
}

async function start(flags: Flags): Promise<void> {
  const stopped = Promise.withResolvers<void>();
  const onSignal = () => stopped.resolve();
  process.on('SIGINT', onSignal).on('SIGTERM', onSignal);
  try {
    await withConfig(flags, async (config) => {
      const service = await startService(config, flags.role === undefined ? {} : { roles: flags.role });
      const bug = await Promise.race([stopped.promise, service.failed]);
      await service.stop();
      if (bug === undefined) return;
      process.stderr.write(`chainbell: ${messageOf(bug)}\n${bug.stack ?? ''}\n`);
      process.exitCode = 1;
    });
  } finally {
    process.off('SIGINT', onSignal).off('SIGTERM', onSignal);
  }
}

function parseRoles(text: string): Role[] {
  return text.split(',').map((name) => {
    const role = roles.find((known) => known === name.trim());
    if (role === undefined) throw new InvalidArgumentError(`${name} is none of ${roles.join(', ')}`);
    return role;
  });
}
