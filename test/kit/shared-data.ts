/**
 * Data that is too big for the repository and may lie beside it.
 */
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const REALCHAIN = fileURLToPath(new URL('../../../shared/realchain', import.meta.url));

/** The folder of real chain data (`../shared/realchain` beside the project), or undefined where it is not there. */
export function realchainFolder(): string | undefined {
  return existsSync(REALCHAIN) ? REALCHAIN : undefined;
}
