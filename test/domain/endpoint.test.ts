import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isOneEndpoint, nodeKeyOf, operatorOf } from '../../src/domain/endpoint.ts';

const isOneNode = (one: string, other: string) => nodeKeyOf(new URL(one)) === nodeKeyOf(new URL(other));

test('URLs that lead to the same node count as one node', () => {
  for (const [one, other] of [
    ['http://localhost:8545', 'http://127.0.0.1:8545'],
    ['http://localhost:8545', 'http://[::1]:8545/'],
    ['http://localhost:8545', 'http://[::ffff:127.0.0.1]:8545'],
    ['http://localhost:8545', 'http://0.0.0.0:8545'],
    ['http://localhost:8545', 'http://0x7f.1:8545'],
    ['http://node.example', 'http://user:password@node.example'],
    ['https://node.example/rpc', 'https://node.example/rpc/?key=1#top'],
    ['https://node.example', 'https://NODE.example.:443/'],
    ['http://node.example:443', 'https://node.example'],
    ['http://node.example/a/./b', 'http://node.example//a/b'],
  ] as const)
    assert.ok(isOneNode(one, other), `${one} ${other}`);
});

test('URLs with different ports, hosts or paths count as different nodes', () => {
  for (const [one, other] of [
    ['http://127.0.0.1:8545', 'http://127.0.0.1:8546'],
    ['http://127.0.0.1:8545', 'http://127.0.0.2:8545'],
    ['https://node.example', 'http://node.example'],
    ['https://node.example/one', 'https://node.example/two'],
    ['https://one.example', 'https://two.example'],
  ] as const)
    assert.ok(!isOneNode(one, other), `${one} ${other}`);
});

test('a WebSocket URL belongs to the node with the same host and port, under any name of this machine', () => {
  assert.ok(isOneEndpoint('ws://localhost:8545/ws', 'http://127.0.0.1:8545'));
  assert.ok(isOneEndpoint('wss://node.example/ws', 'https://node.example/http'));
  assert.ok(!isOneEndpoint('ws://localhost:8546', 'http://localhost:8545'));
});

test('the operator is the registered domain or the IP address', () => {
  for (const [url, operator] of [
    ['https://eth.provider.example/v2/KEY', 'provider.example'],
    ['https://a.b.provider.co.uk', 'provider.co.uk'],
    ['https://x.io', 'x.io'],
    ['http://geth:8545', 'geth'],
    ['http://10.0.0.7:8545', '10.0.0.7'],
    ['http://[2001:db8::1]', '[2001:db8::1]'],
    ['http://127.0.0.1:8545', 'localhost'],
  ] as const)
    assert.equal(operatorOf(new URL(url)), operator);
});
