/**
 * Uses every feature, and then searches all stored data for the used keys and secrets: every table, the files of the
 * embedded database, the log, the metrics, the status.
 */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import path from 'node:path';
import { describe, test } from 'node:test';
import { rotateKey } from '../../src/app/issue-keys.ts';
import { createLog } from '../../src/core/log.ts';
import { deriveKeyRing } from '../../src/domain/key-ring.ts';
import type { Database } from '../../src/store/db/db.ts';
import { sql } from '../../src/store/db/sql.ts';
import { rekeyBatch } from '../../src/store/watchers/rekey.ts';
import { rotateSigningSecret } from '../../src/store/watchers/signing-secrets.ts';
import { headerOf, mine, transferOf } from '../kit/chain-story.ts';
import { createTestDatabase } from '../kit/database.ts';
import { sampledKinds } from '../kit/each-database.ts';
import { startReceiver } from '../kit/receiver.ts';
import { createWatcher, freshAddress, startTestService } from '../kit/service.ts';

for (const kind of sampledKinds(import.meta.url)) {
  test(`no key and no secret is stored in readable form, with the ${kind} database`, async () => {
    const canaries = new Map<string, Buffer>();
    const [former, present] = [randomBytes(32), randomBytes(32)];
    canaries.set('former secret', former).set('present secret', present);
    let log = '';
    const logOptions = { level: 'debug', format: 'pretty' } as const;
    const capture = {
      write(text: string) {
        log += text;
      },
    };
    await using place = await createTestDatabase(kind);
    // The receiver echoes everything, refuses two attempts and accepts the third.
    await using receiver = await startReceiver({
      answer: ({ headers, body }, index) => ({
        status: index < 2 ? 500 : 200,
        body: `${headers.authorization} ${body} ${JSON.stringify(headers)}`,
      }),
    });
    const start = (secret: Buffer, ...formerSecrets: Buffer[]) =>
      startTestService({
        database: place,
        rpc: ['http://127.0.0.1:1'],
        roles: ['api', 'delivery'],
        receivers: [receiver],
        retryMinutes: [0.001],
        secret: secret.toString('base64'),
        formerSecrets: formerSecrets.map((one) => one.toString('base64')),
        log: createLog(logOptions, capture),
      });

    {
      await using service = await start(former);
      const { database } = service;
      const store = { database, keyRing: deriveKeyRing(former) };
      const rotation = { now: new Date(), overlapMs: 60_000 };
      const watcher = await createWatcher(service, 'acme');
      const next = await rotateKey(store, watcher.keyId, rotation);
      canaries.set('former key', secretPartOf(watcher.key)).set('present key', secretPartOf(next.key));
      for (const { number, keys } of await rotateSigningSecret(store, watcher.id, rotation)) {
        canaries.set(`HMAC key ${number}`, keys.hmacKey.export());
        const der = keys.privateKey.export({ format: 'der', type: 'pkcs8' });
        canaries.set(`private key ${number}`, der.subarray(-32));
      }
      const address = freshAddress();
      await watcher.watch({ address, webhookUrl: receiver.url });
      await mine(database, headerOf(1), [transferOf({ receiver: address })]);
      await receiver.waitFor(3);
      await service.drained();
      for (const [resource, key] of [
        ['watched-addresses', watcher.key],
        ['watched-addresses', `${next.key}x`],
        ['signing-secrets', next.key],
        ['nothing', next.key],
      ]) {
        const headers = { authorization: `Bearer ${key}` };
        await (await fetch(`${service.apiUrl}/api/notifications/${resource}`, { headers })).arrayBuffer();
      }
      const [attempt] = await database.query<{ response: string }>(
        sql`select response from delivery_attempt order by id limit 1`,
      );
      assert.match(attempt?.response ?? '', /^Bearer \[redacted\] \{"id":/);
      assert.deepEqual(findIn(canaries, await dumpTables(database)), []);
    }

    {
      await using service = await start(present, former);
      const { database } = service;
      const store = { database, keyRing: deriveKeyRing(present, [former]) };
      assert.equal(await rekeyBatch(store), 4);
      const pages = [`${service.apiUrl}/status`, `${service.apiUrl}/readyz`, service.metricsUrl];
      for (const url of pages) {
        const page = await (await fetch(url)).arrayBuffer();
        assert.deepEqual(findIn(canaries, new Map([[url, Buffer.from(page)]])), []);
      }
      assert.deepEqual(findIn(canaries, await dumpTables(database)), []);
    }
    assert.match(log, /http\.answered.*delivery\.attempted.*service\.stopped/s);
    assert.deepEqual(findIn(canaries, new Map([['log', Buffer.from(log)]])), []);
    if (kind === 'embedded') assert.deepEqual(findIn(canaries, await readFiles(place.dataDir)), []);

    // The canary finds each form in which a secret could be stored.
    const planted = [...canaries.values()].map((canary) => `x${canary.toString('base64')}`).join(' ');
    const database = await place.open();
    await database.query(sql`update delivery_attempt set response = ${planted}`);
    const all = [...canaries.keys()].map((name) => `${name} in delivery_attempt`);
    assert.deepEqual(findIn(canaries, await dumpTables(database)), all);
    await database.close();
    if (kind === 'embedded') {
      const found = findIn(canaries, await readFiles(place.dataDir)).join();
      for (const name of canaries.keys()) assert.ok(found.includes(name), name);
    }
  });
}

describe('the search', () => {
  test('finds bytes as they are, in hexadecimal and in base64 at any offset', () => {
    const canary = randomBytes(32);
    const canaries = new Map([['it', canary]]);
    const base64 = (before: string) =>
      Buffer.from(before + canary.toString('latin1'), 'latin1').toString('base64');
    const forms = [canary.toString('hex'), canary.toString('hex').toUpperCase(), '', 'a', 'ab'].map((form) =>
      form.length > 2 ? form : base64(form),
    );
    for (const form of [canary, ...forms.map((text) => Buffer.from(`<${text}>`))])
      assert.deepEqual(findIn(canaries, new Map([['here', form]])), ['it in here'], form.toString());
    assert.deepEqual(findIn(canaries, new Map([['here', randomBytes(1_000)]])), []);
  });
});

/** The random part of a key. Its id is not secret. */
function secretPartOf(key: string): Buffer {
  return Buffer.from(key.split('_')[3] ?? '');
}

/** Lists the canaries found, each with its place. */
function findIn(canaries: ReadonlyMap<string, Buffer>, places: ReadonlyMap<string, Buffer>): string[] {
  return [...places].flatMap(([place, content]) =>
    [...canaries].flatMap(([name, canary]) =>
      formsOf(canary).some((form) => content.includes(form)) ? [`${name} in ${place}`] : [],
    ),
  );
}

/** The bytes, their hexadecimal digits, and their base64 after 0, 1 or 2 other bytes. */
function formsOf(bytes: Buffer): (Buffer | string)[] {
  const hex = bytes.toString('hex');
  const base64 = [0, 1, 2].map((offset) => {
    const text = Buffer.concat([Buffer.alloc(offset), bytes]).toString('base64');
    // Without the digits that also hold bits of the neighboring bytes.
    return text.slice(Math.ceil((offset * 8) / 6), Math.floor(((offset + bytes.length) * 8) / 6));
  });
  return [bytes, hex, hex.toUpperCase(), ...base64];
}

/** Every row of every table as PostgreSQL prints it, with bytea in hexadecimal. */
async function dumpTables(database: Database): Promise<Map<string, Buffer>> {
  const tables = await database.query<{ name: string }>(sql`
    select relname as name from pg_class
    where relnamespace = 'public'::regnamespace and relkind in ('r', 'p', 'v') and not relispartition order by 1`);
  const dump = new Map<string, Buffer>();
  for (const { name } of tables) {
    const rows = await database.query<{ text: string }>({
      text: `select t::text as text from ${name} t`,
      values: [],
    });
    dump.set(name, Buffer.from(rows.map(({ text }) => text).join('\n')));
  }
  assert.ok(
    ['api_key', 'signing_secret', 'delivery_attempt'].every((name) => (dump.get(name)?.length ?? 0) > 0),
  );
  return dump;
}

async function readFiles(folder: string): Promise<Map<string, Buffer>> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true });
  const files = entries.filter((entry) => entry.isFile());
  const contents = new Map<string, Buffer>();
  for (const { parentPath, name } of files)
    contents.set(path.join(parentPath, name), await readFile(path.join(parentPath, name)));
  return contents;
}
