/**
 * How commands end: their exit codes (sysexits.h), and how they report a Fault or a problem of the configuration. Commands
 * import what they need when they run, because the help and the version must not load the whole program.
 */
import { existsSync } from 'node:fs';
import path from 'node:path';
import { defaultConfigFile, demoConfigFile, findConfigFile } from '../config/config-file.ts';
import { readEnvironment } from '../config/environment.ts';
import type { Config } from '../config/schema.ts';
import { Fault, type FaultCode, messageOf } from '../core/fault.ts';
import { printable } from '../core/terminal-text.ts';

export const exitCodes = { usage: 64, unavailable: 69, tryAgain: 75, config: 78 } as const;

const codeOfFault: Record<FaultCode, number> = {
  invalid: exitCodes.config,
  unauthorized: exitCodes.config,
  forbidden: exitCodes.config,
  not_found: exitCodes.usage,
  conflict: exitCodes.config,
  limited: exitCodes.tryAgain,
  inconsistent: exitCodes.unavailable,
  unavailable: exitCodes.unavailable,
};

/**
 * Loads the configuration and runs a command with it. Configuration problems and Faults become a message on standard
 * error and an exit code. Any other error is a bug and is thrown.
 */
export async function withConfig(
  options: { config?: string },
  command: (config: Config) => Promise<void>,
): Promise<void> {
  await withFaults(async () => {
    await command(await loadFrom(findConfigFile(options.config)));
  });
}

/** Like `withConfig`, for a command about a running service: with no file and no variable of the configuration it uses the running demo's. */
export async function withConfigOrDemo(
  options: { config?: string },
  command: (config: Config) => Promise<void>,
): Promise<void> {
  await withFaults(async () => {
    await command(await loadOrDemo(findConfigFile(options.config)));
  });
}

/** A variable of the configuration rules the demo out, because a mistake in one must not lead to the demo's database. */
async function loadOrDemo(file: string | undefined): Promise<Config> {
  if (file !== undefined || !existsSync(demoConfigFile)) return loadFrom(file);
  const { loadConfig, ConfigError, firstVariable } = await importConfig();
  const variable = firstVariable(readEnvironment());
  if (variable === undefined) {
    process.stderr.write(
      `chainbell: ${noFile()} The command uses that of the running demo, ${demoConfigFile}\n`,
    );
    return loadConfig({ file: demoConfigFile, env: {} });
  }
  try {
    return await loadFrom(file);
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    const advice = `The demo's configuration is not used, because ${variable} is set. To use the demo, unset the variables of the configuration.`;
    throw new ConfigError(error.problems, `${error.message}\n${advice}`);
  }
}

/**
 * Loads the configuration from the file and the environment.
 * @throws ConfigError; without a file, its message also says how to provide one.
 */
export async function loadFrom(file: string | undefined): Promise<Config> {
  const { loadConfig, ConfigError } = await importConfig();
  const env = readEnvironment();
  if (file !== undefined) return loadConfig({ env, file });
  try {
    return loadConfig({ env });
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    throw new ConfigError(
      error.problems,
      `${error.message}\n${noFile()} Create one (chainbell.example.yaml explains every key), or name a file with --config.`,
    );
  }
}

/** npm may have changed the folder, so the path is whole. */
const noFile = () => `There is no file ${printable(path.resolve(defaultConfigFile))}.`;

async function importConfig() {
  const [{ loadConfig }, { ConfigError }, { firstVariable }] = await Promise.all([
    import('../config/load.ts'),
    import('../config/problem-report.ts'),
    import('../config/environment-variables.ts'),
  ]);
  return { loadConfig, ConfigError, firstVariable };
}

/** Like `withConfig`, for a command that needs no configuration. */
export async function withFaults(command: () => Promise<void>): Promise<void> {
  try {
    await command();
  } catch (error) {
    if (error instanceof Fault) {
      process.stderr.write(`chainbell: ${messageOf(error).split('\n').map(printable).join('\n')}\n`);
      process.exitCode = codeOfFault[error.code];
      return;
    }
    const { ConfigError } = await importConfig();
    if (!(error instanceof ConfigError)) throw error;
    process.stderr.write(`${error.message}\n`);
    process.exitCode = exitCodes.config;
  }
}
