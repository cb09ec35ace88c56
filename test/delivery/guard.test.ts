import assert from 'node:assert/strict';
import { isIP } from 'node:net';
import { test } from 'node:test';
import tls from 'node:tls';
import { ConnectFailure, createGuard, type Target } from '../../src/delivery/guard.ts';
import type { HostAddress, Resolver } from '../../src/delivery/resolver.ts';
import { parseCidr } from '../../src/domain/public-address.ts';
import type { WebhookPolicy } from '../../src/domain/webhook-url.ts';
import { startReceiver } from '../kit/receiver.ts';
import { openSender } from '../kit/sender.ts';

const LOOPBACK = [parseCidr('127.0.0.0/8'), parseCidr('::1/128')];
const LOCAL: readonly HostAddress[] = [
  { address: '127.0.0.1', family: 4 },
  { address: '::1', family: 6 },
];

/** Ways to write, or to reach, addresses outside the public internet. Each would reach a listener on all interfaces. */
const PRIVATE_HOSTS = [
  [
    '127.0.0.1',
    '127.0.0.2',
    '127.255.255.254',
    '127.1',
    '127.0.1',
    '0',
    '0.0.0.0',
    '0.0.0.1',
    '2130706433',
    '017700000001',
  ],
  [
    '0x7f.1',
    '0x7f000001',
    '0177.0.0.1',
    '0177.01',
    '１２７.0.0.1',
    '127。0。0。1',
    '①②⑦.⓪.⓪.①',
    '127.0.0.1.',
    '%31%32%37.0.0.1',
  ],
  [
    'localhost',
    'localhost.',
    'LOCALHOST',
    'a.localhost',
    'ip6-localhost',
    'rebound.example.com',
    'printer.local',
    'x.internal',
  ],
  [
    '[::1]',
    '[::]',
    '[0:0:0:0:0:0:0:1]',
    '[::ffff:127.0.0.1]',
    '[::ffff:7f00:1]',
    '[::ffff:0:127.0.0.1]',
    '[::127.0.0.1]',
    '[::7f00:1]',
  ],
  [
    '[64:ff9b::7f00:1]',
    '[64:ff9b:1::7f00:1]',
    '[2002:7f00:1::]',
    '[2001::1]',
    '[2001:0:0:0:0:0:80ff:fffe]',
    '[2001:db8::1]',
  ],
  [
    '[fd00:ec2::254]',
    '[fc00::1]',
    '[fe80::1]',
    '[fec0::1]',
    '[4000::1]',
    '[5f00::1]',
    '[ff02::1]',
    '[100::1]',
    '[3fff::1]',
  ],
  [
    '10.0.0.1',
    '172.16.0.1',
    '172.31.255.255',
    '192.168.1.1',
    '3232235777',
    '100.64.0.1',
    '100.100.100.200',
    '169.254.169.254',
  ],
  [
    '2852039166',
    '168.63.129.16',
    '198.18.0.1',
    '192.0.0.192',
    '192.0.2.1',
    '203.0.113.1',
    '224.0.0.1',
    '240.0.0.1',
    '255.255.255.255',
  ],
].flat();

function targetOf(url: string): Target {
  const { protocol, hostname, port } = new URL(url);
  return { protocol, hostname: hostname.replace(/^\[|\]$/g, ''), port };
}

function guardOf(policy: WebhookPolicy, resolve: Resolver) {
  return createGuard({ policy, resolve, resolveMsMax: 5000, secureContext: tls.createSecureContext() });
}

function failedWith(outcome: ConnectFailure['outcome']): (error: unknown) => boolean {
  return (error) => error instanceof ConnectFailure && error.outcome === outcome;
}

test('no spelling of a private host connects to a listener on all interfaces', async () => {
  await using v4 = await startReceiver({ host: '0.0.0.0' });
  await using v6 = await startReceiver({ host: '::' });
  const policy = { allowHttp: true, allowCidrs: [], ports: [v4.port, v6.port] };
  const resolve: Resolver = async () => LOCAL;
  const guard = guardOf(policy, resolve);
  await using sender = openSender([], { policy, resolve });
  const { signal } = new AbortController();

  assert.ok(PRIVATE_HOSTS.length >= 60);
  for (const host of PRIVATE_HOSTS) {
    for (const scheme of ['http', 'https']) {
      for (const { port } of [v4, v6]) {
        const url = `${scheme}://${host}:${port}/latest/meta-data`;
        const target = targetOf(url);
        await assert.rejects(
          guard(target, signal),
          failedWith(isIP(target.hostname) !== 0 ? 'refused' : 'dns'),
          url,
        );
        const result = await sender.send({ url, headers: {}, body: '{}' }, signal);
        assert.ok(['refused', 'dns'].includes(result.outcome), `${url}: ${result.outcome}`);
      }
    }
  }
  assert.deepEqual([v4.connectionCount(), v6.connectionCount()], [0, 0]);

  // Both listeners can be reached once they are allowed.
  const open = guardOf({ ...policy, allowCidrs: LOOPBACK }, resolve);
  for (const url of [
    `http://127.0.0.1:${v4.port}/`,
    `http://[::1]:${v6.port}/`,
    `http://localhost:${v6.port}/`,
  ]) {
    (await open(targetOf(url), signal)).destroy();
  }
});

test('one private address among public ones refuses the name, with the outcome of an unknown name', async () => {
  await using receiver = await startReceiver();
  const resolve: Resolver = async () => [
    { address: '127.0.0.1', family: 4 },
    { address: '10.0.0.1', family: 4 },
  ];
  const guard = guardOf({ allowHttp: true, allowCidrs: LOOPBACK, ports: [receiver.port] }, resolve);
  const target = targetOf(`http://mixed.example.com:${receiver.port}/`);
  await assert.rejects(guard(target, new AbortController().signal), failedWith('dns'));
  assert.equal(receiver.connectionCount(), 0);
});

test('a name with a denied address fails like an unknown name', async () => {
  await using receiver = await startReceiver();
  const policy = { allowHttp: true, allowCidrs: LOOPBACK, ports: [receiver.port] };
  const resolve: Resolver = async () => [{ address: '127.0.0.1', family: 4 }];
  const target = targetOf(`http://own.example.com:${receiver.port}/`);
  const { signal } = new AbortController();
  const denying = guardOf({ ...policy, denyCidrs: [parseCidr('127.0.0.1/32')] }, resolve);
  await assert.rejects(denying(target, signal), failedWith('dns'));
  assert.equal(receiver.connectionCount(), 0);
  (await guardOf(policy, resolve)(target, signal)).destroy();
});

test('a receiver with many addresses that this machine cannot reach is reached at one of the other family', async () => {
  await using receiver = await startReceiver();
  const unreachable: HostAddress[] = Array.from({ length: 20 }, () => ({ address: '::1', family: 6 }));
  const guard = guardOf({ allowHttp: true, allowCidrs: LOOPBACK, ports: [receiver.port] }, async () => [
    ...unreachable,
    { address: '127.0.0.1', family: 4 },
  ]);
  const target = targetOf(`http://many.example.com:${receiver.port}/`);
  (await guard(target, new AbortController().signal)).destroy();
  assert.equal(receiver.connectionCount(), 1);
});

test('a name that changes its address is checked again for each connection', async () => {
  await using receiver = await startReceiver();
  let resolutionCount = 0;
  const resolve: Resolver = async () => {
    resolutionCount += 1;
    return [{ address: resolutionCount === 1 ? '127.0.0.1' : '10.0.0.1', family: 4 }];
  };
  const guard = guardOf({ allowHttp: true, allowCidrs: LOOPBACK, ports: [receiver.port] }, resolve);
  const target = targetOf(`http://rebinding.example.com:${receiver.port}/`);
  const { signal } = new AbortController();
  (await guard(target, signal)).destroy();
  assert.equal(resolutionCount, 1);
  await assert.rejects(guard(target, signal), failedWith('dns'));
  assert.equal(resolutionCount, 2);
});

test('a connection whose peer turns out to be private is dropped before a byte is sent', async () => {
  await using receiver = await startReceiver();
  let readCount = 0;
  // Public when it is checked, private when it is used, as with a broken network stack between the two.
  const shifting = {
    family: 4 as const,
    get address() {
      readCount += 1;
      return readCount === 1 ? '8.8.8.8' : '127.0.0.1';
    },
  };
  const guard = guardOf({ allowHttp: true, allowCidrs: [], ports: [receiver.port] }, async () => [shifting]);
  const target = targetOf(`http://shifting.example.com:${receiver.port}/`);
  await assert.rejects(guard(target, new AbortController().signal), failedWith('dns'));
  assert.ok(readCount > 1);
  assert.equal(receiver.requests.length, 0);
});

test('a scheme or port outside the policy is refused without resolving the name', async () => {
  const resolve: Resolver = async () => assert.fail('resolved');
  const { signal } = new AbortController();
  const guard = guardOf({ allowHttp: false, allowCidrs: LOOPBACK, ports: [443] }, resolve);
  for (const url of [
    'http://example.com:443/',
    'https://example.com:22/',
    'https://example.com:80/',
    'ftp://example.com:443/',
  ])
    await assert.rejects(guard(targetOf(url), signal), failedWith('refused'), url);
});

test('an address in a URL is checked and used directly, without a DNS query', async () => {
  await using receiver = await startReceiver();
  const resolve: Resolver = async () => assert.fail('resolved');
  const guard = guardOf({ allowHttp: true, allowCidrs: LOOPBACK, ports: [receiver.port] }, resolve);
  (await guard(targetOf(receiver.url), new AbortController().signal)).destroy();
  assert.equal(receiver.connectionCount(), 1);
});

test('a name server that never answers, or finds no address, is a DNS failure that delays no other name', async () => {
  const policy: WebhookPolicy = { allowHttp: false, allowCidrs: [], ports: [443] };
  const secureContext = tls.createSecureContext();
  const silent = createGuard({
    policy,
    resolve: () => new Promise(() => {}),
    resolveMsMax: 20,
    secureContext,
  });
  const empty = createGuard({ policy, resolve: async () => [], resolveMsMax: 20, secureContext });
  const target = targetOf('https://silent.example.com/');
  // Keeps the event loop busy: a deadline alone does not keep a process alive.
  const busy = setInterval(() => undefined, 1000);
  await assert.rejects(silent(target, new AbortController().signal), failedWith('dns'));
  await assert.rejects(empty(target, new AbortController().signal), failedWith('dns'));
  clearInterval(busy);
});
