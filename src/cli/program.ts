/**
 * The commands of `chainbell`. Each command is a file in this folder, and is loaded only when it is needed.
 */
import { Command } from 'commander';
import packageJson from '../../package.json' with { type: 'json' };

const adders = {
  start: async () => (await import('./start.ts')).addStartCommand,
  demo: async () => (await import('./demo.ts')).addDemoCommand,
  migrate: async () => (await import('./migrate.ts')).addMigrateCommand,
  keys: async () => (await import('./keys.ts')).addKeysCommands,
  watchers: async () => (await import('./watchers.ts')).addWatchersCommands,
  secrets: async () => (await import('./secrets.ts')).addSecretsCommands,
  points: async () => (await import('./points.ts')).addPointsCommands,
  verify: async () => (await import('./verify.ts')).addVerifyCommand,
  repair: async () => (await import('./repair.ts')).addRepairCommand,
  receivers: async () => (await import('./receivers.ts')).addReceiversCommand,
  processes: async () => (await import('./processes.ts')).addProcessesCommand,
  status: async () => (await import('./status.ts')).addStatusCommand,
  capacity: async () => (await import('./capacity.ts')).addCapacityCommand,
  config: async () => (await import('./config.ts')).addConfigCommands,
  openapi: async () => (await import('./openapi.ts')).addOpenApiCommand,
};

/**
 * The program with the command of this name only, or with all commands if there is none. With no commands for `--version`,
 * which needs none.
 */
export async function createProgram(name?: string): Promise<Command> {
  const program = new Command('chainbell')
    .description(
      'Follows one EVM chain, sends webhooks for watched addresses, and answers requests about points, prices, pairs and supply.',
    )
    .version(packageJson.version)
    .exitOverride()
    .addHelpText(
      'after',
      '\nExit codes: 0 done, 1 verify or repair found differences, 64 wrong usage, 69 database, node or service unavailable, 75 try again, 78 configuration.',
    );
  if (name === '--version' || name === '-V') return program;
  const named = Object.entries(adders).filter(([known]) => known === name);
  // The help and the error for an unknown command need all of them.
  for (const [, adder] of named.length > 0 ? named : Object.entries(adders)) (await adder())(program);
  if (named.length === 0 && name !== undefined && name !== '') suggestBegun(program, name);
  adviseAfterErrors(program, program.name());
  refuseFlagsAsValues(program);
  return program;
}

/** For `stat` Commander would suggest `start`, because it looks only for the fewest changed letters. */
function suggestBegun(program: Command, word: string): void {
  const begun = program.commands.map((one) => one.name()).filter((name) => name.startsWith(word));
  if (begun.length === 0) return;
  program.on('command:*', () =>
    program.error(`error: unknown command '${word}'\n(Did you mean ${begun.join(' or ')}?)`, {
      code: 'commander.unknownCommand',
    }),
  );
}

/** After wrong usage, names the help of the command that was used. */
function adviseAfterErrors(command: Command, words: string): void {
  const what = command.commands.length > 0 ? 'lists the commands' : 'shows how to use it';
  command.showHelpAfterError(`(${words} --help ${what})`);
  for (const one of command.commands) adviseAfterErrors(one, `${words} ${one.name()}`);
}

/** Commander would take `--json` as the name in `--watcher --json`, which a shell makes of `--watcher $NAME --json` without the name. */
function refuseFlagsAsValues(command: Command): void {
  const parseOptions = command.parseOptions.bind(command);
  command.parseOptions = (args) => {
    for (const [index, arg] of args.entries()) {
      if (arg === '--') break;
      const option = command.options.find(
        ({ required, long, short }) => required && [long, short].includes(arg),
      );
      const value = args[index + 1] ?? '';
      // What is wrong with a negative number, the option says itself.
      if (option !== undefined && /^-\D/.test(value))
        command.error(
          `error: option '${option.flags}' has no value, because '${value}' begins with a dash. If it is the value, write ${arg}=${value}`,
        );
    }
    return parseOptions(args);
  };
  for (const one of command.commands) refuseFlagsAsValues(one);
}
