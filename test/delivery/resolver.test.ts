import assert from 'node:assert/strict';
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { test } from 'node:test';
import { createDnsResolver, createResolver } from '../../src/delivery/resolver.ts';
import { parseCidr } from '../../src/domain/public-address.ts';
import { createTestClock } from '../kit/clock.ts';

const TYPE_A = 1;
const TYPE_AAAA = 28;

/** The name server's answers for a name: addresses as bytes or silence for each type, or nothing (no such name). */
type Zone = Record<string, { [type: number]: number[][] | 'silent' }>;

/** A DNS server on loopback (RFC 1035) that knows the zone; returns its `ip:port`. */
async function startNameServer(zone: Zone, signal: AbortSignal): Promise<string> {
  const server = createSocket({ type: 'udp4', signal });
  server.on('message', (query, peer) => {
    const labels: string[] = [];
    let end = 12;
    for (let length = query[end] ?? 0; length > 0; length = query[end] ?? 0) {
      labels.push(query.toString('latin1', end + 1, end + 1 + length));
      end += length + 1;
    }
    const entry = zone[labels.join('.').toLowerCase()];
    const answers = entry?.[query.readUInt16BE(end + 1)] ?? [];
    if (answers === 'silent') return;
    const header = Buffer.from(query.subarray(0, 12));
    header.writeUInt16BE(entry === undefined ? 0x8183 : 0x8180, 2);
    header.writeUInt16BE(answers.length, 6);
    header.writeUInt32BE(0, 8);
    const records = answers.map((address) =>
      Buffer.from([
        0xc0,
        12,
        ...query.subarray(end + 1, end + 5),
        0,
        0,
        0,
        60,
        0,
        address.length,
        ...address,
      ]),
    );
    server.send(Buffer.concat([header, query.subarray(12, end + 5), ...records]), peer.port, peer.address);
  });
  server.bind(0, '127.0.0.1');
  await once(server, 'listening');
  return `127.0.0.1:${server.address().port}`;
}

test('a name resolves to its addresses of both families, or of the family that is answered; without any it rejects', async () => {
  const stop = new AbortController();
  const zone: Zone = {
    'both.example.com': {
      [TYPE_A]: [
        [192, 0, 2, 1],
        [10, 0, 0, 1],
      ],
      [TYPE_AAAA]: [[0x20, 1, 0xd, 0xb8, ...Array(11).fill(0), 1]],
    },
    'half.example.com': { [TYPE_A]: [[192, 0, 2, 7]], [TYPE_AAAA]: 'silent' },
    'old.example.com': { [TYPE_A]: [[192, 0, 2, 9]] },
  };
  const server = await startNameServer(zone, stop.signal);
  const resolve = createDnsResolver({ servers: () => [server] });
  const both = await resolve('both.example.com');
  assert.deepEqual(both.map(({ address, family }) => `${family} ${address}`).sort(), [
    '4 10.0.0.1',
    '4 192.0.2.1',
    '6 2001:db8::1',
  ]);
  assert.deepEqual(await resolve('old.example.com'), [{ address: '192.0.2.9', family: 4 }]);
  assert.deepEqual(await resolve('half.example.com'), [{ address: '192.0.2.7', family: 4 }]);
  await assert.rejects(resolve('missing.example.com'), { code: 'ENOTFOUND' });
  stop.abort();
});

test('a change of the DNS servers has effect within 30 s, and queries under way keep theirs', async (context) => {
  const stop = new AbortController();
  context.after(() => stop.abort());
  const zoneOf = (last: number): Zone => ({ 'name.example.com': { [TYPE_A]: [[192, 0, 2, last]] } });
  const [before, after] = [zoneOf(1), zoneOf(2)];
  let server = await startNameServer(before, stop.signal);
  const clock = createTestClock();
  const resolve = createDnsResolver({ servers: () => [server], clock });
  const last = async () => (await resolve('name.example.com'))[0]?.address;
  assert.equal(await last(), '192.0.2.1');
  server = await startNameServer(after, stop.signal);
  clock.advance(29_999);
  const underWay = last();
  clock.advance(1);
  assert.equal(await last(), '192.0.2.2');
  assert.equal(await underWay, '192.0.2.1');
});

test('any number of names with a silent name server delay no other name', async () => {
  const stop = new AbortController();
  const zone: Zone = { 'good.example.com': { [TYPE_A]: [[192, 0, 2, 1]] } };
  const silentNames = Array.from({ length: 50 }, (_, index) => `silent${index}.example.com`);
  for (const name of silentNames) zone[name] = { [TYPE_A]: 'silent', [TYPE_AAAA]: 'silent' };
  const server = await startNameServer(zone, stop.signal);
  const resolve = createDnsResolver({ servers: () => [server] });

  const order: string[] = [];
  const silent = silentNames.map((name) => resolve(name).catch(() => order.push('silent')));
  await resolve('good.example.com').then(() => order.push('good'));
  assert.deepEqual(order, ['good']);
  await Promise.all(silent);
  assert.equal(order.length, 51);
  stop.abort();
});

test('a deployment with private ranges resolves names as the machine does, including its hosts file', async () => {
  const resolve = createResolver({ allowHttp: true, allowCidrs: [parseCidr('127.0.0.0/8')], ports: [443] });
  const found = await resolve('localhost');
  assert.ok(found.some(({ address }) => address === '127.0.0.1' || address === '::1'));
});
