/**
 * The 32 bytes from which all keys are derived: given by the configuration, or made once in the data folder when the
 * database lies there too.
 */
import { randomBytes } from 'node:crypto';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import type { Config } from './config/schema.ts';
import { deriveKeyRing, type KeyRing } from './core/api-key.ts';
import { Fault } from './core/fault.ts';
import type { Db } from './store/db.ts';
import { listKekIds } from './store/keys.ts';

const SECRET_BYTES = 32;

/**
 * The key ring of this installation.
 * @throws Fault `invalid` when stored keys were made with another secret: they could neither be checked nor sent.
 */
export async function openKeyRing(config: Config, db: Db): Promise<KeyRing> {
  const text = config.secret === '' ? await ensureSecretFile(config.dataDir) : config.secret;
  const ring = deriveKeyRing(Buffer.from(text, 'base64'));
  const foreign = (await listKekIds(db)).find((kekId) => kekId !== ring.kekId);
  if (foreign === undefined) return ring;
  throw new Fault(
    'invalid',
    'secret is not the one with which the stored API keys were made: give the former one (CHAINBELL_SECRET)',
  );
}

async function ensureSecretFile(dataDir: string): Promise<string> {
  const file = path.join(dataDir, 'secret');
  await mkdir(dataDir, { recursive: true });
  // Only the first start writes; `wx` keeps a secret that is there.
  await writeFile(file, `${randomBytes(SECRET_BYTES).toString('base64')}\n`, {
    mode: 0o600,
    flag: 'wx',
  }).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'EEXIST') throw error;
  });
  return (await readFile(file, 'utf8')).trim();
}
