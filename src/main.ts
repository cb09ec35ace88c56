/**
 * The command line: `chainbell <command>`. Each command is a file in cli/, and only the one that is asked for is loaded.
 */
import { Command, CommanderError } from 'commander';
import packageJson from '../package.json' with { type: 'json' };
import { exitCodes } from './cli/exit.ts';
import { messageOf } from './core/fault.ts';

const adders = {
  start: async () => (await import('./cli/start.ts')).addStartCommand,
  demo: async () => (await import('./cli/demo.ts')).addDemoCommand,
  migrate: async () => (await import('./cli/migrate.ts')).addMigrateCommand,
  keys: async () => (await import('./cli/keys.ts')).addKeysCommands,
  watchers: async () => (await import('./cli/watchers.ts')).addWatchersCommands,
  secrets: async () => (await import('./cli/secrets.ts')).addSecretsCommands,
  points: async () => (await import('./cli/points.ts')).addPointsCommands,
  verify: async () => (await import('./cli/verify.ts')).addVerifyCommand,
  repair: async () => (await import('./cli/repair.ts')).addRepairCommand,
  receivers: async () => (await import('./cli/receivers.ts')).addReceiversCommand,
  status: async () => (await import('./cli/status.ts')).addStatusCommand,
  config: async () => (await import('./cli/config.ts')).addConfigCommands,
  openapi: async () => (await import('./cli/openapi.ts')).addOpenApiCommand,
};

const program = new Command('chainbell')
  .description(
    'Follows one EVM chain: rings webhooks for watched addresses, answers questions about the chain.',
  )
  .version(packageJson.version)
  .showHelpAfterError('(chainbell --help lists the commands)')
  .exitOverride()
  .addHelpText(
    'after',
    '\nExit codes: 0 done, 1 verify or repair found differences, 64 wrong usage, 69 database, node or service unavailable, 75 try again, 78 configuration.',
  );

const named = Object.entries(adders).filter(([name]) => name === process.argv[2]);
// Help, and words that are no command, need all of them.
for (const [, adder] of named.length > 0 ? named : Object.entries(adders)) (await adder())(program);

try {
  await program.parseAsync();
} catch (error) {
  if (error instanceof CommanderError) {
    // Commander has said what is wrong; asking for help or the version is not wrong.
    process.exitCode = error.exitCode === 0 ? 0 : exitCodes.usage;
  } else {
    process.stderr.write(
      `chainbell: ${error instanceof Error ? (error.stack ?? messageOf(error)) : messageOf(error)}\n`,
    );
    process.exitCode = 1;
  }
}
