/**
 * The command line: `chainbell <command>`. Each command is a file in cli/.
 */
import { Command, CommanderError } from 'commander';
import packageJson from '../package.json' with { type: 'json' };
import { addConfigCommands } from './cli/config.ts';
import { addDemoCommand } from './cli/demo.ts';
import { exitCodes } from './cli/exit.ts';
import { addKeysCommands } from './cli/keys.ts';
import { addMigrateCommand } from './cli/migrate.ts';
import { addOpenApiCommand } from './cli/openapi.ts';
import { addPointsCommands } from './cli/points.ts';
import { addSecretsCommands } from './cli/secrets.ts';
import { addStartCommand } from './cli/start.ts';
import { addStatusCommand } from './cli/status.ts';
import { addVerifyCommand } from './cli/verify.ts';
import { messageOf } from './core/fault.ts';

const program = new Command('chainbell')
  .description(
    'Follows one EVM chain: rings webhooks for watched addresses, answers questions about the chain.',
  )
  .version(packageJson.version)
  .showHelpAfterError('(chainbell --help lists the commands)')
  .exitOverride()
  .addHelpText(
    'after',
    '\nExit codes: 0 done, 1 verify found differences, 64 wrong usage, 69 database, node or service unavailable, 75 try again, 78 configuration.',
  );

addStartCommand(program);
addDemoCommand(program);
addMigrateCommand(program);
addKeysCommands(program);
addSecretsCommands(program);
addPointsCommands(program);
addVerifyCommand(program);
addStatusCommand(program);
addConfigCommands(program);
addOpenApiCommand(program);

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
