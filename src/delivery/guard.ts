/**
 * The only way out for a webhook: opens a connection to a receiver, never to a private network, whatever the URL or
 * the DNS says. Names are resolved once per connection; every answer must be allowed; the connection goes to those
 * very answers; and the peer is judged once more before the first byte is sent.
 */
import { once } from 'node:events';
import net from 'node:net';
import tls from 'node:tls';
import { startAbort } from '../core/abort.ts';
import { isPublicAddress } from '../domain/public-address.ts';
import { isPortAllowed, type WebhookPolicy } from '../domain/webhook-url.ts';
import type { HostAddress, Resolver } from './resolver.ts';

/** What a connection is made to, as in a URL: hostname without brackets, port empty for the scheme's own. */
export type Target = { protocol: string; hostname: string; port: string };

/**
 * A connection to the target, through TLS for https; destroyed when the signal aborts, later too.
 * @throws ConnectFailure for every reason but the signal.
 */
export type Guard = (target: Target, signal: AbortSignal) => Promise<net.Socket>;

type GuardOptions = {
  policy: WebhookPolicy;
  resolve: Resolver;
  /** How long a name server may take. */
  resolveMsMax: number;
  /** What TLS trusts. */
  secureContext: tls.SecureContext;
};

/** How far a connection got. Coarse, and without addresses: watchers see it, and it must not map a network for them. */
export class ConnectFailure extends Error {
  override readonly name = 'ConnectFailure';
  readonly outcome: 'refused' | 'dns' | 'connect' | 'tls';

  constructor(outcome: ConnectFailure['outcome'], cause?: unknown) {
    super(outcome, { cause });
    this.outcome = outcome;
  }
}

/** A name may have any number of addresses; trying them must end within an attempt. */
const ADDRESS_COUNT_MAX = 8;
/** Before the next address is tried; a slow path to another continent takes about 300 ms. */
const ADDRESS_TRY_MS = 500;

/** A guard for the policy. */
export function createGuard({ policy, resolve, resolveMsMax, secureContext }: GuardOptions): Guard {
  const isAllowed = (address: string): boolean => isPublicAddress(address, policy.allowCidrs);

  return async (target, signal) => {
    const isScheme = target.protocol === 'https:' || (policy.allowHttp && target.protocol === 'http:');
    if (!isScheme || !isPortAllowed(target, policy)) throw new ConnectFailure('refused');
    const resolving = startAbort(signal, resolveMsMax);
    const addresses = await addressesOf(target.hostname, resolve, resolving.signal).finally(
      resolving.release,
    );
    // One bad answer poisons the name: a receiver has no business with private addresses beside public ones.
    if (!addresses.every(({ address }) => isAllowed(address))) throw notAllowed(target);

    const port = target.port !== '' ? Number(target.port) : target.protocol === 'https:' ? 443 : 80;
    const socket = await connect(addresses.slice(0, ADDRESS_COUNT_MAX), port, signal);
    if (!isAllowed(socket.remoteAddress ?? '')) {
      socket.destroy();
      throw notAllowed(target);
    }
    return target.protocol === 'https:' ? await secure(socket, target.hostname, secureContext) : socket;
  };
}

/** A name that leads to a private address fails as one that does not exist: who watches must not learn which names do. */
const notAllowed = ({ hostname }: Target) => new ConnectFailure(net.isIP(hostname) === 0 ? 'dns' : 'refused');

/**
 * What TLS to receivers trusts: the built-in roots (and those that the machine adds to Node's own), and
 * `caCertificates` (PEM) on top.
 */
export function createSecureContext(caCertificates: string | undefined): tls.SecureContext {
  if (caCertificates === undefined) return tls.createSecureContext();
  return tls.createSecureContext({ ca: [...tls.getCACertificates('default'), caCertificates] });
}

async function addressesOf(
  hostname: string,
  resolve: Resolver,
  signal: AbortSignal,
): Promise<readonly HostAddress[]> {
  const family = net.isIP(hostname);
  if (family !== 0) return [{ address: hostname, family: family === 6 ? 6 : 4 }];
  const found = await Promise.race([resolve(hostname), rejectionAt(signal)]).catch((error: unknown) => {
    throw new ConnectFailure('dns', error);
  });
  if (found.length === 0) throw new ConnectFailure('dns');
  return found;
}

async function rejectionAt(signal: AbortSignal): Promise<never> {
  if (!signal.aborted) await once(signal, 'abort');
  throw signal.reason;
}

function connect(addresses: readonly HostAddress[], port: number, signal: AbortSignal): Promise<net.Socket> {
  return new Promise((resolve, reject) => {
    const socket = net.connect({
      // Never looked up: `lookup` answers with the addresses that were judged.
      host: 'pinned.invalid',
      lookup: (_hostname, options, done) => {
        const [first] = addresses;
        if (options.all === true) done(null, [...addresses]);
        else done(null, first?.address ?? '', first?.family);
      },
      port,
      noDelay: true,
      autoSelectFamily: true,
      autoSelectFamilyAttemptTimeout: ADDRESS_TRY_MS,
      signal,
    });
    const fail = (error: Error): void => reject(new ConnectFailure('connect', error));
    socket.once('error', fail);
    socket.once('connect', () => {
      socket.off('error', fail);
      resolve(socket);
    });
  });
}

function secure(socket: net.Socket, hostname: string, secureContext: tls.SecureContext): Promise<net.Socket> {
  // Neither SNI (RFC 6066) nor a certificate writes the dot that may end a name, and SNI knows no addresses.
  const name = hostname.replace(/\.+$/, '');
  return new Promise((resolve, reject) => {
    const secured = tls.connect({
      socket,
      host: name,
      ...(net.isIP(name) === 0 ? { servername: name } : {}),
      secureContext,
      ALPNProtocols: ['http/1.1'],
      // Said aloud because NODE_TLS_REJECT_UNAUTHORIZED=0 in the environment would turn it off otherwise.
      rejectUnauthorized: true,
    });
    const fail = (error: Error): void => {
      secured.destroy();
      reject(new ConnectFailure('tls', error));
    };
    // The inner socket fails by itself when the signal aborts; the outer one closes with it.
    socket.on('error', fail);
    secured.once('error', fail);
    secured.once('secureConnect', () => {
      secured.off('error', fail);
      resolve(secured);
    });
  });
}
