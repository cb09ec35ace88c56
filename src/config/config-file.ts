/**
 * Finds the configuration file that a command uses.
 */
import { existsSync } from 'node:fs';

/** The file in the working folder that a command uses without --config. */
export const defaultConfigFile = 'chainbell.yaml';

/** The configuration of a running demo in its default folder. */
export const demoConfigFile = '.chainbell/demo/chainbell.yaml';

/** The named file, or `chainbell.yaml` if it exists. Undefined means that every value comes from the environment. */
export function findConfigFile(named: string | undefined): string | undefined {
  if (named !== undefined) return named;
  return existsSync(defaultConfigFile) ? defaultConfigFile : undefined;
}
