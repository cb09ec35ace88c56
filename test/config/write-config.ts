/**
 * Writes a configuration file for one test.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** Creates a folder with a chainbell.yaml of this text. The folder is removed when the scope ends. */
export function writeConfig(text: string | Buffer): {
  folder: string;
  file: string;
  [Symbol.dispose](): void;
} {
  const folder = mkdtempSync(join(tmpdir(), 'chainbell-config-'));
  const file = join(folder, 'chainbell.yaml');
  writeFileSync(file, text);
  return { folder, file, [Symbol.dispose]: () => rmSync(folder, { recursive: true }) };
}
