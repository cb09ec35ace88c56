import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readdir, readFile, readlink, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { Fault } from '../../../src/core/fault.ts';
import { lockFolder } from '../../../src/store/db/folder-lock.ts';
import { openDatabase } from '../../../src/store/db/open.ts';
import { socketPathOf } from '../../../src/store/db/socket-frames.ts';

const MODULE = fileURLToPath(new URL('../../../src/store/db/folder-lock.ts', import.meta.url));

let folder = '';
beforeEach(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'chainbell-lock-'));
});
afterEach(() => rm(folder, { recursive: true, force: true }));

const isConflict = (error: unknown): error is Fault => error instanceof Fault && error.code === 'conflict';
const lockFile = () => path.join(folder, 'lock');

/** A process that tries to lock the folder, prints `locked` or `refused`, and runs until it is ended. */
async function startLocker(): Promise<{ answer: string; pid: number; kill(): Promise<void> }> {
  const program = `
    const { lockFolder } = await import(${JSON.stringify(MODULE)});
    setInterval(() => {}, 1000);
    await lockFolder(${JSON.stringify(folder)}).then(() => console.log('locked'), (error) => console.log(error.code === 'conflict' ? 'refused' : error));`;
  const child = spawn(process.execPath, ['--input-type=module', '--eval', program], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const [answer] = await once(child.stdout.setEncoding('utf8'), 'data');
  return {
    answer: String(answer).trim(),
    pid: child.pid ?? 0,
    async kill() {
      const ended = once(child, 'exit');
      child.kill('SIGKILL');
      await ended;
    },
  };
}

test('a locked folder refuses a second lock and names the owner, until the lock is released', async () => {
  const unlock = await lockFolder(folder);
  await assert.rejects(
    lockFolder(folder),
    (error) => isConflict(error) && error.message.includes(`process ${process.pid}`),
  );
  assert.deepEqual(await readdir(folder), ['lock']);
  await unlock();
  assert.deepEqual(await readdir(folder), []);
  await (await lockFolder(folder))();
});

test('a running process keeps its folder, and a killed one loses it at once', async () => {
  const locker = await startLocker();
  assert.equal(locker.answer, 'locked');
  await assert.rejects(
    lockFolder(folder),
    (error) => isConflict(error) && error.message.includes(`process ${locker.pid}`),
  );
  await locker.kill();
  const unlock = await lockFolder(folder);
  assert.match(await readFile(lockFile(), 'utf8'), new RegExp(`^${process.pid} `));
  await unlock();
});

test('a lock is stale if its process id now belongs to another process', async () => {
  await writeFile(lockFile(), `${process.pid} 1\n`);
  await (await lockFolder(folder))();
});

test('the lock of a process that is not found here is stale once no service accepts connections at the socket', async () => {
  for (const owner of ['999999999 1', '999999999 1 pid:[1]', `${process.pid} 1 pid:[1]`]) {
    const server = createServer((socket) => socket.destroy()).listen(socketPathOf(folder));
    await once(server, 'listening');
    await writeFile(lockFile(), `${owner}\n`);
    try {
      await assert.rejects(lockFolder(folder), isConflict, owner);
      assert.equal(await readFile(lockFile(), 'utf8'), `${owner}\n`);
    } finally {
      await new Promise((resolve) => server.close(resolve));
    }
    await (await lockFolder(folder))();
  }
  await writeFile(lockFile(), '999999999 1 pid:[1]\n');
  await writeFile(socketPathOf(folder), 'no socket');
  await (await lockFolder(folder))();
});

test('in another namespace, the id and start time of a running process do not show whether the owner runs', async () => {
  const unlock = await lockFolder(folder);
  const own = await readFile(lockFile(), 'utf8');
  const namespace = await readlink('/proc/self/ns/pid').catch(() => undefined);
  if (namespace !== undefined) {
    assert.ok(own.endsWith(` ${namespace}\n`), own);
    await writeFile(lockFile(), own.replace(namespace, 'pid:[1]'));
    await (await lockFolder(folder))();
  }
  await writeFile(lockFile(), own.split(' ').slice(0, 2).join(' '));
  await assert.rejects(lockFolder(folder), isConflict, 'a lock of a former version');
  await unlock();
});

test('a lock file with invalid content is stale, and a half-written one cannot exist', async () => {
  for (const text of ['', 'garbage', '-1 5', '0 0']) {
    await writeFile(lockFile(), text);
    await (await lockFolder(folder))();
  }
});

test('if many processes race for a free folder, exactly one gets it', async () => {
  const outcomes = await Promise.allSettled(Array.from({ length: 10 }, () => lockFolder(folder)));
  const won = outcomes.filter((outcome) => outcome.status === 'fulfilled');
  assert.equal(won.length, 1);
  for (const outcome of outcomes) if (outcome.status === 'rejected') assert.ok(isConflict(outcome.reason));
  assert.deepEqual(await readdir(folder), ['lock']);
});

test('if two processes race for the folder of an ended one, exactly one gets it', async () => {
  for (let round = 0; round < 3; round += 1) {
    await writeFile(lockFile(), '999999999 1\n');
    const lockers = await Promise.all([startLocker(), startLocker()]);
    assert.deepEqual(lockers.map(({ answer }) => answer).sort(), ['locked', 'refused']);
    for (const locker of lockers) await locker.kill();
  }
});

test('the embedded database cannot be opened twice, but can be opened again after it is closed', async () => {
  const database = await openDatabase({ url: '', dataDir: folder });
  await assert.rejects(openDatabase({ url: '', dataDir: folder }), isConflict);
  await database.close();
  await (await openDatabase({ url: '', dataDir: folder })).close();
});

test('an embedded database that cannot be opened does not keep its folder locked', async () => {
  await writeFile(path.join(folder, 'database'), 'a file where a folder should be');
  await assert.rejects(openDatabase({ url: '', dataDir: folder }), (error) => !isConflict(error));
  assert.deepEqual(await readdir(folder), ['database']);
});
