import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { startAnvil } from '../../devnet/anvil.ts';
import { encodeCall } from '../../devnet/contracts.ts';
import { findFreePort } from '../../devnet/free-port.ts';
import { endOrphans } from '../../devnet/orphans.ts';
import { Fault } from '../../src/core/fault.ts';
import { startChain } from '../kit/anvil.ts';
import { waitUntil } from '../kit/wait.ts';

function temporaryFolder(): Disposable & { path: string } {
  const path = mkdtempSync(join(tmpdir(), 'chainbell-test-'));
  return { path, [Symbol.dispose]: () => rmSync(path, { recursive: true, force: true }) };
}

/** A process that has ended counts as gone, even before its parent has collected it (state Z). */
function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return process.platform !== 'linux' || !/\) Z /.test(readFileSync(`/proc/${pid}/stat`, 'latin1'));
  } catch {
    return false;
  }
}

/** A process that starts anvil, mines 7 blocks and says anvil's pid; it exits when its standard input ends. */
async function startOwner(options: { stateFile?: string }) {
  const module = new URL('../../devnet/anvil.ts', import.meta.url).href;
  const program = `
    const { startAnvil } = await import(${JSON.stringify(module)});
    const anvil = await startAnvil(${JSON.stringify(options)});
    await anvil.rpc('anvil_mine', ['0x7']);
    console.log(anvil.pid);
    process.stdin.on('end', () => process.exit(0)).resume();`;
  const owner = spawn(process.execPath, ['--input-type=module', '-e', program], {
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  const [chunk] = await once(owner.stdout, 'data');
  return { owner, anvilPid: Number(String(chunk)) };
}

test('an anvil answers from the first moment, and is gone after stop, however often stop is called', async () => {
  const anvil = await startAnvil({ chainId: 4242 });
  assert.equal(await anvil.rpc('eth_chainId'), '0x1092');
  await Promise.all([anvil.stop(), anvil.stop()]);
  await anvil.stop();
  assert.equal(isAlive(anvil.pid), false);
});

test('files that a long chain writes are removed when it stops', async () => {
  using folder = temporaryFolder();
  const usual = process.env.TMPDIR;
  process.env.TMPDIR = folder.path;
  try {
    const listStates = () =>
      readdirSync(folder.path, { recursive: true, encoding: 'utf8' }).filter((name) =>
        name.includes('chainbell-anvil'),
      );
    const anvil = await startAnvil();
    await anvil.rpc('anvil_mine', ['0x320']);
    await waitUntil(() => listStates().length > 2, { describe: 'states of the past on the disk' });
    await anvil.stop();
    assert.deepEqual(listStates(), []);
  } finally {
    if (usual === undefined) delete process.env.TMPDIR;
    else process.env.TMPDIR = usual;
  }
});

test('a port that is taken is named, and nothing is left running', async () => {
  using folder = temporaryFolder();
  await using first = await startAnvil();
  const second = startAnvil({ port: first.port, stateFile: join(folder.path, 'state.json') });
  await assert.rejects(second, { code: 'conflict', message: `port ${first.port} cannot be used` });
  assert.deepEqual(readdirSync(folder.path), []);
});

test('another node that takes the port while anvil starts is not mistaken for it', async () => {
  using folder = temporaryFolder();
  const port = await findFreePort(0);
  const other = createServer((_request, response) => {
    response.end(JSON.stringify({ jsonrpc: '2.0', id: 1, result: '0x7a69' }));
  });
  // So many accounts take anvil a while, before it listens.
  const extraArguments = ['--accounts', '300'];
  const start = startAnvil({ port, stateFile: join(folder.path, 'state.json'), extraArguments });
  const rejected = assert.rejects(start, { code: 'conflict' });
  await waitUntil(() => readdirSync(folder.path).length > 0, { describe: 'anvil to be started' });
  other.listen(port, '127.0.0.1').unref();
  await once(other, 'listening');
  await rejected;
});

test('a failed start shows the caller anvil’s message', async () => {
  const start = startAnvil({ extraArguments: ['--hardfork', 'no-such-fork'] });
  await assert.rejects(
    start,
    (error: unknown) => error instanceof Fault && /no-such-fork/.test(error.message),
  );
});

test('a restarted anvil has the same blocks and receipts, can trace them and can replace them', async () => {
  using folder = temporaryFolder();
  const stateFile = join(folder.path, 'state.json');
  const before = await startChain({ stateFile });
  const [payer, first] = before.accounts;
  const splitter = await before.deploy('Splitter');
  const input = encodeCall({ contract: 'Splitter', method: 'split', values: [[first]] });
  const { hash, blockHash } = await before.execute({ from: payer, to: splitter, valueWei: 5n, input });
  const head = await before.head();
  const trace = await before.rpc('debug_traceBlockByHash', [blockHash, { tracer: 'callTracer' }]);
  await before.stop();

  await using after = await startChain({ stateFile });
  assert.deepEqual(await after.head(), head);
  assert.equal((await after.receiptOf(hash)).blockHash, blockHash);
  assert.deepEqual(await after.rpc('debug_traceBlockByHash', [blockHash, { tracer: 'callTracer' }]), trace);
  await after.reorg(1);
  assert.notDeepEqual(await after.head(), head);
});

test('two living anvils never share a state file', async () => {
  using folder = temporaryFolder();
  const stateFile = join(folder.path, 'state.json');
  await using _first = await startAnvil({ stateFile });
  await assert.rejects(startAnvil({ stateFile }), { code: 'conflict' });
});

test('an anvil whose owner was killed is ended by the next start, which continues its chain', {
  skip: process.platform !== 'linux',
}, async () => {
  using folder = temporaryFolder();
  const stateFile = join(folder.path, 'state.json');
  const { owner, anvilPid } = await startOwner({ stateFile });
  owner.kill('SIGKILL');
  await once(owner, 'close');
  assert.equal(isAlive(anvilPid), true);

  await using anvil = await startAnvil({ stateFile });
  await waitUntil(() => !isAlive(anvilPid));
  assert.equal(await anvil.rpc('eth_blockNumber'), '0x7');
});

test('an anvil ends with its owner when the owner exits without stopping it', async () => {
  const { owner, anvilPid } = await startOwner({});
  owner.stdin.end();
  await once(owner, 'close');
  await waitUntil(() => !isAlive(anvilPid));
});

test('a recorded pid that now belongs to another program is left alone', {
  skip: process.platform !== 'linux',
}, async () => {
  using folder = temporaryFolder();
  const children = { folder: folder.path, program: 'anvil' };
  const innocent = spawn('sleep', ['60'], { stdio: 'ignore' });
  await once(innocent, 'spawn');
  try {
    const module = new URL('../../devnet/orphans.ts', import.meta.url).href;
    const record = `(await import(${JSON.stringify(module)})).recordChild(${JSON.stringify(children)}, ${innocent.pid})`;
    await once(spawn(process.execPath, ['--input-type=module', '-e', record], { stdio: 'inherit' }), 'close');
    assert.equal(readdirSync(folder.path).length, 1);

    assert.deepEqual(await endOrphans(children, { shared: true }), []);
    assert.equal(innocent.exitCode, null);
    assert.equal(isAlive(Number(innocent.pid)), true);
  } finally {
    innocent.kill();
  }
});
