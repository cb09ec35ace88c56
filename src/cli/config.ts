/**
 * `chainbell config check | print | schema`: reports problems, shows the effective configuration, prints its JSON Schema.
 */
import type { Command } from 'commander';
import { findConfigFile } from '../config/config-file.ts';
import type { Config } from '../config/schema.ts';
import { counted } from '../core/plural.ts';
import { exitCodes, loadFrom } from './exit.ts';

/** Adds `config` and its three subcommands. Data goes to standard output, everything else to standard error. */
export function addConfigCommands(program: Command): void {
  const config = program.command('config').description('check and show the configuration');
  const withOptions = (command: Command) =>
    command
      .option('--config <file>', 'configuration file (default: chainbell.yaml if it exists)')
      .option('--json', 'print JSON to standard output');

  withOptions(
    config
      .command('check')
      .description('report every problem and warning; exit code 78 if there are problems'),
  ).action((options: Options, command: Command) => check(options, outputOf(command)));
  withOptions(
    config.command('print').description('print the effective configuration without secrets'),
  ).action((options: Options, command: Command) => print(options, outputOf(command)));
  config
    .command('schema')
    .description('print the JSON Schema of the configuration file, for editors')
    .action(async (_options: Options, command: Command) => {
      const { configJsonSchema } = await import('../config/json-schema.ts');
      outputOf(command).out(toJson(configJsonSchema()));
    });
}

type Options = { config?: string; json?: boolean };
type Output = { out(text: string): void; err(text: string): void };

async function check(options: Options, output: Output): Promise<void> {
  const loaded = await load(options, output);
  if (loaded === undefined) return;
  const [{ chainWarnings }, { priceWarnings }, { networkWarnings, openingWarnings, readCaFile }, { Fault }] =
    await Promise.all([
      import('../app/chain-warnings.ts'),
      import('../app/price-warnings.ts'),
      import('../app/webhook-opening.ts'),
      import('../core/fault.ts'),
    ]);
  const name = loaded.file ?? 'environment';
  const problems = await readCaFile(loaded.config).then(
    () => [],
    (error: unknown) => {
      if (error instanceof Fault) return error.problems;
      throw error;
    },
  );
  const { config } = loaded;
  const warnings = [
    ...chainWarnings(config),
    ...priceWarnings(config),
    ...openingWarnings(config),
    ...networkWarnings(config),
  ];
  if (problems.length > 0) process.exitCode = exitCodes.config;
  if (options.json === true) {
    const { file } = loaded;
    output.out(
      toJson({
        problems: problems.map((one) => ({ ...one, file })),
        warnings: warnings.map((one) => ({ ...one, file })),
      }),
    );
    return;
  }
  for (const { path, message } of warnings) output.err(`${name}: warning: ${path}: ${message}\n`);
  for (const { path, message } of problems) output.err(`${name}  ${path}: ${message}\n`);
  const count = warnings.length === 0 ? '' : `, ${counted(warnings.length, 'warning')}`;
  if (problems.length === 0) output.err(`${name}: no problems${count}\n`);
}

async function print(options: Options, output: Output): Promise<void> {
  const loaded = await load(options, output);
  if (loaded === undefined) return;
  const [{ printableConfig }, { stringify }] = await Promise.all([
    import('../config/printable-config.ts'),
    import('yaml'),
  ]);
  const printable = printableConfig(loaded.config);
  output.out(options.json === true ? toJson(printable) : stringify(printable));
}

/** Returns undefined after it has reported problems and set the exit code. */
async function load(
  options: Options,
  output: Output,
): Promise<{ config: Config; file: string | undefined } | undefined> {
  const file = findConfigFile(options.config);
  try {
    return { config: await loadFrom(file), file };
  } catch (error) {
    const { ConfigError } = await import('../config/problem-report.ts');
    if (!(error instanceof ConfigError)) throw error;
    process.exitCode = exitCodes.config;
    if (options.json === true) output.out(toJson({ problems: error.problems, warnings: [] }));
    else output.err(`${error.message}\n`);
    return undefined;
  }
}

function toJson(value: unknown): string {
  return `${JSON.stringify(value, null, 2)}\n`;
}

/** The output of this command's program, which a test can replace. */
function outputOf(command: Command): Output {
  const { writeOut, writeErr } = command.configureOutput();
  return {
    out: writeOut ?? ((text) => process.stdout.write(text)),
    err: writeErr ?? ((text) => process.stderr.write(text)),
  };
}
