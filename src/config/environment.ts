/**
 * The only place of the program that reads `process.env`; everything else is handed an Environment.
 */

/** Variables by name; an absent one is undefined. */
export type Environment = Record<string, string | undefined>;

/** The variables of this process, as they are now. */
export function readEnvironment(): Environment {
  return process.env;
}
