/**
 * Every known way to direct a webhook into a private network. Two listeners wait on all interfaces, on ports that the policy
 * allows. No attempt may connect to them, or open any socket.
 */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import tls from 'node:tls';
import { promisify } from 'node:util';
import ipaddr from 'ipaddr.js';
import { createGuard } from '../../src/delivery/guard.ts';
import type { Resolver } from '../../src/delivery/resolver.ts';
import type { SendOutcome } from '../../src/delivery/send.ts';
import { isPublicAddress, parseCidr } from '../../src/domain/public-address.ts';
import type { WebhookPolicy } from '../../src/domain/webhook-url.ts';
import { createAuthority } from '../kit/certificates.ts';
import { startReceiver } from '../kit/receiver.ts';
import { messageTo, openSender } from '../kit/sender.ts';
import { realchainFolder } from '../kit/shared-data.ts';
import { boundsOf, embeddedForms, specialIpv4, specialIpv6 } from '../kit/special-ranges.ts';
import type { Abuse } from './abuse.ts';

const never = new AbortController().signal;
const LOOPBACK: Resolver = async () => [
  { address: '127.0.0.1', family: 4 },
  { address: '::1', family: 6 },
];

/** Listens, runs the attempts and asserts that none of them connected. `count` is the number of attempts. */
async function withListeners(
  attack: (trap: {
    ports: readonly number[];
    /** Sends a message to this URL. `resolve` decides the addresses of its host name. */
    outcomeOf(url: string, resolve?: Resolver): Promise<SendOutcome>;
    /** Checks the guard alone, without the URL check before it. */
    refuses(host: string, port: number, resolve?: Resolver): Promise<void>;
  }) => Promise<number>,
): Promise<string> {
  await using parts = new AsyncDisposableStack();
  const v4 = parts.use(await startReceiver({ host: '0.0.0.0' }));
  const v6 = parts.use(await startReceiver({ host: '::' }));
  const ports = [v4.port, v6.port];
  const policy: WebhookPolicy = { allowHttp: true, allowCidrs: [], ports };
  let sockets = 0;
  const onSocket = () => {
    sockets += 1;
  };
  subscribe('net.client.socket', onSocket);
  parts.defer(() => void unsubscribe('net.client.socket', onSocket));
  const count = await attack({
    ports,
    async outcomeOf(url, resolve = LOOPBACK) {
      await using sender = openSender([], { policy, resolve });
      const { outcome } = await sender.send(messageTo(url), never);
      return outcome;
    },
    async refuses(hostname, port, resolve = LOOPBACK) {
      const secureContext = tls.createSecureContext();
      const guard = createGuard({ policy, resolve, resolveMsMax: 5_000, secureContext });
      for (const protocol of ['http:', 'https:'])
        await assert.rejects(
          guard({ protocol, hostname, port: String(port) }, never),
          { outcome: 'refused' },
          `${protocol}//${hostname}`,
        );
    },
  });
  assert.deepEqual([v4.connectionCount(), v6.connectionCount(), sockets], [0, 0, 0]);
  return `${count} refused, 0 connections, 0 sockets`;
}

/** Outcomes for a private address in the URL, and for a name that resolves to one. */
const REFUSALS: ReadonlySet<SendOutcome> = new Set(['refused', 'dns']);

const published: Abuse = {
  name: 'no published SSRF URL reaches a listener, whatever its names resolve to',
  async commit() {
    const file = path.join(realchainFolder() ?? '', 'vectors/ssrf-urls.json');
    if (!existsSync(file)) return 'not here: needs the shared data folder beside the project';
    const { cases } = JSON.parse(readFileSync(file, 'utf8')) as { cases: { input: string }[] };
    return withListeners(async ({ ports, outcomeOf }) => {
      let count = 0;
      for (const { input } of cases) {
        const url = URL.parse(input);
        // Skip public addresses, because the request would leave this machine.
        if (url !== null && isPublicAddress(url.hostname.replace(/^\[|\]$/g, ''), [])) continue;
        const targets = [input];
        for (const port of ports) {
          if (url === null) continue;
          url.port = String(port);
          targets.push(url.href, url.href.replace(/^\w+:/, 'http:'));
        }
        for (const target of targets) {
          assert.ok(REFUSALS.has(await outcomeOf(target)), `${input} as ${target}`);
          count += 1;
        }
      }
      assert(count > 300);
      return count;
    });
  },
};

/** The first, middle and last address of each special-purpose range, with every form of IPv4 addresses. */
function* specialAddresses(): Generator<string> {
  for (const range of specialIpv4) {
    const { first, last } = boundsOf(range);
    for (const address of new Set([first, Math.floor((first + last) / 2), last]))
      yield* Object.values(embeddedForms(address));
  }
  for (const range of specialIpv6) {
    yield ipaddr.IPv6.networkAddressFromCIDR(range).toString();
    yield ipaddr.IPv6.broadcastAddressFromCIDR(range).toString();
  }
}

const literals: Abuse = {
  name: 'a special-purpose address in a URL gets no connection',
  commit: () =>
    withListeners(async ({ ports, outcomeOf, refuses }) => {
      let count = 0;
      for (const address of specialAddresses()) {
        const host = address.includes(':') ? `[${address}]` : address;
        for (const port of ports) {
          assert.equal(await outcomeOf(`https://${host}:${port}/`), 'refused', address);
          await refuses(address, port);
          count += 1;
        }
      }
      return count;
    }),
};

const answers: Abuse = {
  name: 'a special-purpose address in a DNS answer gets no connection, alone or among public ones',
  commit: () =>
    withListeners(async ({ ports: [port = 0], outcomeOf }) => {
      let count = 0;
      for (const address of specialAddresses()) {
        const family = address.includes(':') ? 6 : 4;
        const mixed = [
          { address: '8.8.8.8', family: 4 as const },
          { address: '2606:4700::1111', family: 6 as const },
        ];
        const found = [{ address, family } as const];
        for (const list of [found, [...found, ...mixed], [...mixed, ...found]]) {
          const url = `http://rebound.example.com:${port}/`;
          assert.equal(await outcomeOf(url, async () => list), 'dns', address);
          count += 1;
        }
      }
      return count;
    }),
};

const rebinding: Abuse = {
  name: 'a name that is public when a webhook is registered and private later gets no request at the private address',
  async commit() {
    await using allowed = await startReceiver({
      host: '127.0.0.2',
      answer: { headers: { connection: 'close' } },
    });
    await using hidden = await startReceiver({ host: '127.0.0.1', port: allowed.port });
    let asked = 0;
    const resolve: Resolver = async () => {
      asked += 1;
      return [{ address: asked % 2 === 1 ? '127.0.0.2' : '127.0.0.1', family: 4 }];
    };
    // The policy allows only this loopback address.
    const policy = { allowHttp: true, allowCidrs: [parseCidr('127.0.0.2/32')], ports: [allowed.port] };
    await using sender = openSender([], { policy, resolve });
    const outcomes: SendOutcome[] = [];
    for (let sent = 0; sent < 6; sent += 1)
      outcomes.push(
        (await sender.send(messageTo(`http://rebinding.example.com:${allowed.port}/`), never)).outcome,
      );
    assert.deepEqual(outcomes, ['success', 'dns', 'success', 'dns', 'success', 'dns']);
    assert.deepEqual([allowed.requests.length, asked, hidden.connectionCount()], [3, 6, 0]);
    return `${asked} resolutions for ${outcomes.length} connections, 0 requests at the private address`;
  },
};

const proxies: Abuse = {
  name: 'proxy settings of the environment have no effect, for http and for https',
  async commit() {
    await using parts = new AsyncDisposableStack();
    const authority = createAuthority();
    const proxy = parts.use(await startReceiver());
    const plain = parts.use(await startReceiver());
    const secure = parts.use(await startReceiver({ tls: authority.issue(['127.0.0.1']) }));
    const root = new URL('../..', import.meta.url).href;
    const script = `
      const { openSender } = await import('${root}test/kit/sender.ts');
      const { ports, urls, caCertificates } = JSON.parse(process.argv[1]);
      const sender = openSender(ports.map((port) => ({ port })), { caCertificates });
      for (const url of urls)
        console.log((await sender.send({ url, headers: {}, body: '{}' }, new AbortController().signal)).outcome);
      await sender[Symbol.asyncDispose]();`;
    const given = {
      ports: [plain.port, secure.port],
      urls: [plain.url, secure.url],
      caCertificates: authority.certificate,
    };
    const names = ['HTTP_PROXY', 'HTTPS_PROXY', 'ALL_PROXY', 'http_proxy', 'https_proxy', 'all_proxy'];
    const proxyUrl = `http://127.0.0.1:${proxy.port}`;
    const env = { NODE_USE_ENV_PROXY: '1', ...Object.fromEntries(names.map((name) => [name, proxyUrl])) };
    const words = ['--input-type=module', '--eval', script, JSON.stringify(given)];
    const { stdout } = await promisify(execFile)(process.execPath, words, { env });
    assert.deepEqual(stdout.trim().split('\n'), ['success', 'success']);
    assert.deepEqual([plain.requests.length, secure.requests.length, proxy.connectionCount()], [1, 1, 0]);
    return '2 webhooks sent, 0 connections to the proxy';
  },
};

export const guardAbuses: readonly Abuse[] = [published, literals, answers, rebinding, proxies];
