/**
 * Derives the key ring from the secret of 32 bytes. The configuration gives the secret; with the embedded database it is created
 * once in the data folder.
 */
import { randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import { link, readFile, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import type { Config } from '../config/schema.ts';
import { Fault } from '../core/fault.ts';
import { flush } from '../core/flush.ts';
import { deriveKeyRing, type KeyRing, kekIdsOf, lacksKek } from '../domain/key-ring.ts';
import { prepareDataFolder } from '../store/db/data-folder.ts';
import type { Db } from '../store/db/db.ts';
import { withFolderFaults } from '../store/db/folder-fault.ts';
import { listKekIds } from '../store/watchers/api-keys.ts';

const SECRET_BYTES = 32;

/**
 * The key ring of this installation.
 * @throws Fault `invalid` when stored keys were encrypted with a secret that isn't given, because they could be neither checked nor sent.
 */
export async function openKeyRing(config: Config, db: Db): Promise<KeyRing> {
  const stored = await listKekIds(db);
  const isFile = config.secret === '';
  const text = isFile
    ? await ensureSecretFile(config.dataDir, { mayCreate: stored.length === 0 })
    : config.secret;
  // An empty entry comes from a variable that isn't set.
  const formerTexts = config.formerSecrets.filter((former) => former !== '');
  const ring = deriveKeyRing(
    Buffer.from(text, 'base64'),
    formerTexts.map((former) => Buffer.from(former, 'base64')),
  );
  if (!lacksKek(kekIdsOf(ring), stored)) return ring;
  if (isFile)
    throw new Fault(
      'invalid',
      `${secretFileOf(config.dataDir)} is not the secret with which the stored API keys were made. Restore that file from a backup, or add the former secret to formerSecrets (CHAINBELL_FORMER_SECRETS)`,
    );
  throw new Fault(
    'invalid',
    'secret is not the one with which the stored API keys were made: give the former one (CHAINBELL_SECRET), or beside a new one in formerSecrets (CHAINBELL_FORMER_SECRETS)',
  );
}

const secretFileOf = (dataDir: string): string => path.resolve(dataDir, 'secret');

/** Creates the file if `mayCreate`: a new secret beside stored keys would take the place of the one to restore. */
async function ensureSecretFile(dataDir: string, { mayCreate }: { mayCreate: boolean }): Promise<string> {
  const file = secretFileOf(dataDir);
  await prepareDataFolder(dataDir);
  return withFolderFaults(dataDir, async () => {
    const isMissing = !existsSync(file);
    if (isMissing && !mayCreate)
      throw new Fault(
        'invalid',
        `${file} is missing, and the stored API keys were made with it. Restore the file from a backup, readable for this user only`,
      );
    if (isMissing) await writeSecret(file);
    const text = (await readFile(file, 'utf8').catch(explainFolder)).trim();
    if (Buffer.from(text, 'base64').length === SECRET_BYTES) return text;
    throw new Fault(
      'invalid',
      `${file} does not hold ${SECRET_BYTES} bytes in base64. Restore it from a backup, or delete it if no key was ever issued`,
    );
  });

  function explainFolder(error: NodeJS.ErrnoException): never {
    if (error.code !== 'EISDIR') throw error;
    throw new Fault(
      'invalid',
      `${file} is a folder, and the secret is a file. Move the folder away, and restore the file from a backup if keys were issued`,
    );
  }
}

/** Writes the file completely or not at all, because a disk may be full. Keeps an existing secret. */
async function writeSecret(file: string): Promise<void> {
  const draft = `${file}.${process.pid}`;
  try {
    await writeFile(draft, `${randomBytes(SECRET_BYTES).toString('base64')}\n`, { mode: 0o600, flush: true });
    await link(draft, file).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== 'EEXIST') throw error;
    });
    await flush(path.dirname(file));
  } finally {
    await rm(draft, { force: true });
  }
}
