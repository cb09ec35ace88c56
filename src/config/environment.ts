/**
 * The only place in the program that reads `process.env`. Everything else receives an EnvironmentVariables.
 */

/** EnvironmentVariables variables by name. */
export type EnvironmentVariables = Record<string, string | undefined>;

/** The environment variables of this process. */
export function readEnvironment(): EnvironmentVariables {
  return process.env;
}
