/**
 * The help of every command, for docs/reference/commands.md.
 */
import type { Command } from 'commander';
import { createProgram } from '../../../src/cli/program.ts';

const WIDTH = 110;

export async function renderCommands(): Promise<string> {
  return leavesOf(await createProgram(), [])
    .map(
      ({ name, command }) =>
        `### \`${name}\`\n\n\`\`\`text\n${command.configureHelp({ helpWidth: WIDTH }).helpInformation().trimEnd()}\n\`\`\``,
    )
    .join('\n\n');
}

/** The commands without subcommands, with their full names. */
function leavesOf(command: Command, before: readonly string[]): { name: string; command: Command }[] {
  return command.commands
    .filter((one) => one.name() !== 'help')
    .flatMap((one) => {
      const names = [...before, one.name()];
      return one.commands.length > 0 ? leavesOf(one, names) : [{ name: names.join(' '), command: one }];
    });
}
