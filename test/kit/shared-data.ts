/**
 * Locates data that is too large for the repository and may exist beside it.
 */
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const REALCHAIN = fileURLToPath(new URL('../../../shared/realchain', import.meta.url));

/** The folder of real chain data (`../shared/realchain` beside the project). Undefined where it does not exist. */
export function realchainFolder(): string | undefined {
  return existsSync(REALCHAIN) ? REALCHAIN : undefined;
}
