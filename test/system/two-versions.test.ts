/**
 * A rolling upgrade: processes of two versions on one database. The newer version is this program with further migrations.
 */
import assert from 'node:assert/strict';
import { cp, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { test } from 'node:test';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { startService } from '../../src/app/service.ts';
import { Fault } from '../../src/core/fault.ts';
import { silentLog } from '../../src/core/log.ts';
import { openForCommand } from '../../src/store/db/command-database.ts';
import { migrate } from '../../src/store/db/migrate.ts';
import { startChain } from '../kit/anvil.ts';
import { createTestDatabase } from '../kit/database.ts';
import { type Program, startProgram } from '../kit/program.ts';
import { startReceiver } from '../kit/receiver.ts';
import { createWatcher, freshAddress, startTestService, testConfig } from '../kit/service.ts';
import { waitUntil } from '../kit/wait.ts';

const own = fileURLToPath(new URL('../../src/store/db/migrations/', import.meta.url));
const example = fileURLToPath(new URL('../store/db/0002_example.sql', import.meta.url));
/** It changes nothing, so that this program can stand for the version that needs it. */
const BREAKING = `-- Breaking: amounts are stored in another unit
comment on table watcher is 'changed'`;

async function makeFolder(parts: AsyncDisposableStack): Promise<string> {
  const folder = await mkdtemp(path.join(tmpdir(), 'chainbell-versions-'));
  parts.defer(() => rm(folder, { recursive: true }));
  await cp(own, folder, { recursive: true });
  await cp(example, path.join(folder, '0002_example.sql'));
  return folder;
}

test('two versions work side by side, one after the other, until a breaking migration ends the older one', async () => {
  await using parts = new AsyncDisposableStack();
  const chain = parts.use(await startChain());
  const place = parts.use(await createTestDatabase('postgres'));
  const receiver = parts.use(await startReceiver());
  const startOld = () => {
    const program = startProgram({ database: place, rpc: [chain.url], startBlock: 1, receiver });
    parts.defer(async () => {
      program.child.kill('SIGKILL');
      await program.ended;
    });
    return program;
  };
  const isUp = ({ log }: Program) => log.includes('"service.started"');
  const folder = await makeFolder(parts);
  const startNew = async () =>
    parts.use(
      await startTestService({
        ...{ database: place, rpc: [chain.url], receivers: [receiver] },
        ...{ chain: { startBlock: 1 }, migrations: pathToFileURL(`${folder}/`) },
      }),
    );
  const paid: string[] = [];
  const address = freshAddress();
  const pay = async () => {
    const { hash } = await chain.transferNative({ from: chain.accounts[1], to: address, valueWei: 1n });
    paid.push(hash);
  };
  const told = () => receiver.requests.map(({ json }) => Object(json).hash as string);
  const areTold = () => waitUntil(() => told().length >= paid.length, { describe: 'each payment told' });

  const old = startOld();
  await waitUntil(() => isUp(old));
  const newer = await startNew();
  const watcher = await createWatcher(newer, 'acme');
  await watcher.watch({ address, webhookUrl: receiver.url });
  // The older version leads and both deliver.
  for (let count = 0; count < 10; count += 1) await pay();
  await areTold();
  assert.equal(old.child.exitCode, null, old.log);

  old.child.kill('SIGTERM');
  await pay();
  await old.ended;
  assert.equal(old.child.exitCode, 0, old.log);
  await pay();
  await areTold();

  // Back to the older version, on the newer schema.
  const again = startOld();
  await waitUntil(() => isUp(again));
  assert.match(again.log, /"newer":\["0002_example\.sql"\].*"database\.newer"/);
  await pay();
  await newer.stop();
  await pay();
  await areTold();

  await writeFile(path.join(folder, '0003_breaking.sql'), BREAKING);
  await startNew();
  await pay();
  await again.ended;
  const refusal =
    /a newer version of chainbell .* can't work with: 0003_breaking\.sql \(amounts are stored in another unit\)\. Start the newer version here/;
  assert.deepEqual([again.child.exitCode, refusal.test(again.log)], [78, true], again.log);
  const refused = startOld();
  await refused.ended;
  assert.deepEqual([refused.child.exitCode, refusal.test(refused.log)], [78, true], refused.log);
  await pay();
  await areTold();
  assert.deepEqual(told().sort(), paid.sort());
});

test('a process whose statements fail because of a breaking migration says so, and not that it has a bug', async () => {
  await using parts = new AsyncDisposableStack();
  const chain = parts.use(await startChain());
  const place = parts.use(await createTestDatabase('postgres'));
  const database = await place.open();
  const program = startProgram({ database: place, rpc: [chain.url], startBlock: 1, receiver: { port: 1 } });
  parts.defer(async () => {
    program.child.kill('SIGKILL');
    await program.ended;
  });
  await waitUntil(() => program.log.includes('"service.started"'));
  await database.script(`
    alter table block rename column mined_at to made_at;
    insert into migration values (2, '0002_rename.sql', now(), 'a test')`);
  await chain.mine();
  await program.ended;
  assert.equal(program.child.exitCode, 78, program.log);
  assert.match(program.log, /chainbell: a newer version .*0002_rename\.sql \(a test\)[^\n]*\n$/);
});

test('a breaking migration that a command applies through the socket ends the service with the embedded database', async () => {
  await using parts = new AsyncDisposableStack();
  const place = parts.use(await createTestDatabase('embedded'));
  const config = testConfig({ database: place, rpc: ['http://127.0.0.1:1'] });
  const service = await startService(config, { log: silentLog(), roles: ['api'] });
  parts.defer(() => service.stop());
  const folder = await makeFolder(parts);
  await writeFile(path.join(folder, '0003_breaking.sql'), BREAKING);
  const command = await openForCommand({ url: '', dataDir: place.dataDir });
  await migrate(command, pathToFileURL(`${folder}/`));
  const error = await service.failed;
  assert.ok(error instanceof Fault && error.code === 'conflict', String(error));
  assert.match(error.message, /can't work with: 0003_breaking\.sql/);
});
