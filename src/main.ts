/**
 * The command line: `chainbell <command>`.
 */
import { CommanderError } from 'commander';
import { exitCodes } from './cli/exit.ts';
import { createProgram } from './cli/program.ts';
import { messageOf } from './core/fault.ts';

// A reader such as `head` may have enough before everything is written.
if (process.argv[2] !== 'start')
  process.stdout.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code !== 'EPIPE') throw error;
    process.exit();
  });

const program = await createProgram(process.argv[2]);

try {
  await program.parseAsync();
} catch (error) {
  if (error instanceof CommanderError) {
    // Commander has already printed the error. A request for help or the version is not an error.
    process.exitCode = error.exitCode === 0 ? 0 : exitCodes.usage;
  } else {
    process.stderr.write(
      `chainbell: ${error instanceof Error ? (error.stack ?? messageOf(error)) : messageOf(error)}\n`,
    );
    process.exitCode = 1;
  }
}
