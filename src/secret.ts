/**
 * The 32 bytes from which all keys are derived: given by the configuration, or made once in the data folder when the
 * database lies there too.
 */
import { randomBytes } from 'node:crypto';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import type { Config } from './config/schema.ts';
import { Fault } from './core/fault.ts';
import { deriveKeyRing, type KeyRing } from './core/key-ring.ts';
import type { Db } from './store/db.ts';
import { listKekIds } from './store/keys.ts';

const SECRET_BYTES = 32;

/**
 * The key ring of this installation.
 * @throws Fault `invalid` when stored keys were made with a secret that is not given: they could neither be checked nor sent.
 */
export async function openKeyRing(config: Config, db: Db): Promise<KeyRing> {
  const text = config.secret === '' ? await ensureSecretFile(config.dataDir) : config.secret;
  // An empty one is a variable that is not set.
  const formerTexts = config.formerSecrets.filter((former) => former !== '');
  const ring = deriveKeyRing(
    Buffer.from(text, 'base64'),
    formerTexts.map((former) => Buffer.from(former, 'base64')),
  );
  const known = new Set([ring, ...ring.former].map(({ kekId }) => kekId));
  const stored = await listKekIds(db);
  if (stored.every((kekId) => known.has(kekId))) return ring;
  throw new Fault(
    'invalid',
    'secret is not the one with which the stored API keys were made: give the former one (CHAINBELL_SECRET), or beside a new one in formerSecrets (CHAINBELL_FORMER_SECRETS)',
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
