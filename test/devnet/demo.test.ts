import assert from 'node:assert/strict';
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { createDemoStage } from '../kit/demo.ts';
import { waitUntil } from '../kit/wait.ts';

const post = (url: string, body: unknown, headers: Record<string, string> = {}) =>
  fetch(url, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: JSON.stringify(body),
  });

test('the first webhook is printed, Ctrl-C twice stops cleanly, and the next start continues', async (context) => {
  const stage = createDemoStage(context);
  const first = stage.start();
  const facts = await first.facts();
  assert.match(first.text(), /#\d+ +(COIN|TOKEN)_TRANSFER [^\n]*→[^\n]*\n.*first webhook received/);
  await waitUntil(() => first.text().includes('Point it at your own chain'), { describe: 'the screen' });

  first.process.kill('SIGINT');
  first.process.kill('SIGINT');
  assert.equal(await first.exitCode, 0, first.text());
  assert.match(first.text(), /stopped\n$/);
  assert.deepEqual(readdirSync(join(stage.folder, 'demo-chain')), ['state.json']);

  const second = stage.start();
  const factsAgain = await second.facts();
  assert.match(second.text(), /continuing at block \d+/);
  assert.equal(factsAgain.api_key, facts.api_key);
  second.process.kill('SIGTERM');
  assert.equal(await second.exitCode, 0);
});

test('a demo that was killed leaves nothing behind that keeps the next one from continuing', async (context) => {
  const stage = createDemoStage(context);
  const first = stage.start();
  await first.facts();
  first.process.kill('SIGKILL');
  await first.exitCode;

  const second = stage.start();
  await second.facts();
  assert.match(second.text(), /continuing at block \d+/);
  second.process.kill('SIGINT');
  assert.equal(await second.exitCode, 0);
});

test('an address of the reader rings after its transfer, and a broken receiver gets its webhook again', async (context) => {
  const demo = createDemoStage(context).start('--fast-retries', '--block-time', '1');
  const facts = await demo.facts();
  const { visitor, deployer } = facts.accounts;
  const created = await post(
    `${facts.api_url}/api/notifications/watched-addresses`,
    { address: visitor, webhook_url: facts.receiver_url },
    { authorization: `Bearer ${facts.api_key}` },
  );
  assert.equal(created.status, 200);

  await post(`${facts.receiver_url}/break`, {});
  const value = '0x6f05b59d3b20000';
  const params = [{ from: deployer, to: visitor, value }];
  await post(facts.chain.rpc_url, { jsonrpc: '2.0', id: 1, method: 'eth_sendTransaction', params });
  await waitUntil(() => / 0\.5 ETH .*refused with 500, attempt 1/.test(demo.text()));
  await post(`${facts.receiver_url}/mend`, {});
  await waitUntil(() => / 0\.5 ETH .*accepted at attempt \d+/.test(demo.text()), { timeoutMs: 30_000 });

  demo.process.kill('SIGINT');
  assert.equal(await demo.exitCode, 0);
});
