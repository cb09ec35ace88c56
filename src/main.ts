/**
 * The command line: `chainbell <command>`.
 */
import { getSystemErrorMessage } from 'node:util';
import { CommanderError } from 'commander';
import { exitCodes } from './cli/exit.ts';
import { createProgram } from './cli/program.ts';
import { messageOf } from './core/fault.ts';

if (process.argv[2] !== 'start') {
  // These run until they are interrupted. The others go on to their exit code, because they may be changing the database.
  const isEndless = process.argv[2] === 'demo' || process.argv.includes('--watch');
  let isReported = false;
  process.stdout.on('error', (error: NodeJS.ErrnoException) => {
    // A reader such as `head` may have enough before everything is written.
    if (error.code !== 'EPIPE' && !isReported) {
      isReported = true;
      const reason = error.errno === undefined ? messageOf(error) : getSystemErrorMessage(error.errno);
      process.stderr.write(
        `chainbell: standard output cannot be written: ${reason}. The output is incomplete. Free space, or write it to another place\n`,
      );
      process.on('exit', () => {
        process.exitCode = exitCodes.unavailable;
      });
    }
    if (isEndless) process.exit();
  });
}
// The exit code still says how the command ended.
process.stderr.on('error', () => {});

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
