import assert from 'node:assert/strict';
import { readdirSync, statSync } from 'node:fs';
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

test('the first webhook is printed; killed or stopped by Ctrl-C twice, the demo continues; a broken receiver gets its webhook again', async (context) => {
  const stage = createDemoStage(context);
  const first = stage.start();
  const { api_key, admin_token } = await first.facts();
  assert.match(first.text(), /#\d+ +(COIN|TOKEN)_TRANSFER [^\n]*→[^\n]*\n.*first webhook received/);
  await waitUntil(() => first.text().includes('Follow your own chain'), { describe: 'the screen' });
  first.process.kill('SIGKILL');
  await first.exitCode;

  const second = stage.start('--fast-retries', '--block-time', '1');
  const facts = await second.facts();
  assert.match(second.text(), /continuing at block \d+/);
  assert.equal(facts.api_key, api_key);
  assert.equal(facts.admin_token, admin_token);
  assert.equal(statSync(join(stage.folder, 'demo.json')).mode & 0o777, 0o600);
  const { visitor, deployer } = facts.accounts;
  const created = await post(
    `${facts.api_url}/api/notifications/watched-addresses`,
    { address: visitor, webhook_url: facts.receiver_url },
    { authorization: `Bearer ${api_key}` },
  );
  assert.equal(created.status, 200);
  await post(`${facts.receiver_url}/break`, {});
  const value = '0x6f05b59d3b20000';
  const params = [{ from: deployer, to: visitor, value }];
  await post(facts.chain.rpc_url, { jsonrpc: '2.0', id: 1, method: 'eth_sendTransaction', params });
  await waitUntil(() => / 0\.5 ETH .*refused with 500, attempt 1/.test(second.text()));
  await post(`${facts.receiver_url}/mend`, {});
  await waitUntil(() => / 0\.5 ETH .*accepted at attempt \d+/.test(second.text()));

  second.process.kill('SIGINT');
  second.process.kill('SIGINT');
  assert.equal(await second.exitCode, 0, second.text());
  assert.match(second.text(), /stopped\n$/);
  assert.deepEqual(readdirSync(join(stage.folder, 'demo-chain')), ['state.json']);

  const third = stage.start();
  const factsAgain = await third.facts();
  assert.match(third.text(), /continuing at block \d+/);
  assert.equal(factsAgain.api_key, api_key);
  third.process.kill('SIGTERM');
  assert.equal(await third.exitCode, 0);
});
