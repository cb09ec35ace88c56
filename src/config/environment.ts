/**
 * The only place in the program that reads `process.env`. Everything else receives an Environment.
 */

/** Environment variables by name. */
export type Environment = Record<string, string | undefined>;

/** The environment variables of this process. */
export function readEnvironment(): Environment {
  return process.env;
}
