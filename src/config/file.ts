/**
 * Which configuration file a command uses.
 */
import { existsSync } from 'node:fs';

/** The file that is taken from the working folder when none is named. */
const defaultConfigFile = 'chainbell.yaml';

/** The configuration of a demo, while it runs in its default folder. */
export const demoConfigFile = '.chainbell/demo/chainbell.yaml';

/** The named file, else `chainbell.yaml` where there is one, else undefined: everything from the environment. */
export function findConfigFile(named: string | undefined): string | undefined {
  if (named !== undefined) return named;
  return existsSync(defaultConfigFile) ? defaultConfigFile : undefined;
}
