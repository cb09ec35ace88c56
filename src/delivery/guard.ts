/**
 * Opens every connection to a receiver, and never one to a private network, whatever the URL or the DNS says. A name is resolved
 * once per connection. Every address must be allowed, the connection uses only these addresses, and the peer's address is checked
 * again before the first byte is sent.
 */
import { X509Certificate } from 'node:crypto';
import { once } from 'node:events';
import net from 'node:net';
import tls from 'node:tls';
import { startAbort } from '../core/abort.ts';
import {
  isPortAllowed,
  isReachable,
  type WebhookPolicy,
  withoutTrailingDots,
} from '../domain/webhook-url.ts';
import type { HostAddress, Resolver } from './resolver.ts';

/** The destination, as in a URL: hostname without brackets, port empty for the scheme's default. */
export type Target = { protocol: string; hostname: string; port: string };

/**
 * Connects to the target, with TLS for https. The socket is destroyed when the signal aborts, even after it was returned.
 * @throws ConnectFailure for every failure except an abort.
 */
export type Guard = (target: Target, signal: AbortSignal) => Promise<net.Socket>;

type GuardOptions = {
  policy: WebhookPolicy;
  resolve: Resolver;
  /** How long a name server may take. */
  resolveMsMax: number;
  /** The certificate authorities that TLS trusts. */
  secureContext: tls.SecureContext;
};

/** The step at which a connection failed. Coarse and without addresses, because watchers see it and must not use it to scan a network. */
export class ConnectFailure extends Error {
  override readonly name = 'ConnectFailure';
  readonly outcome: 'refused' | 'dns' | 'connect' | 'tls';

  constructor(outcome: ConnectFailure['outcome'], cause?: unknown) {
    super(outcome, { cause });
    this.outcome = outcome;
  }
}

/** A name may have any number of addresses, and trying them must fit into one attempt. */
const ADDRESS_COUNT_MAX = 8;
/** How long to try an address before the next one. A slow path to another continent takes about 300 ms. */
const ADDRESS_TRY_MS = 500;

/** A guard for the policy. */
export function createGuard({ policy, resolve, resolveMsMax, secureContext }: GuardOptions): Guard {
  const isAllowed = (address: string): boolean => isReachable(address, policy);

  return async (target, signal) => {
    const isScheme = target.protocol === 'https:' || (policy.allowHttp && target.protocol === 'http:');
    if (!isScheme || !isPortAllowed(target, policy)) throw new ConnectFailure('refused');
    const resolving = startAbort(signal, resolveMsMax);
    const addresses = await addressesOf(target.hostname, resolve, resolving.signal).finally(
      resolving.release,
    );
    // One forbidden address refuses the name, because a receiver needs no private address beside public ones.
    if (!addresses.every(({ address }) => isAllowed(address))) throw notAllowed(target);

    const port = target.port !== '' ? Number(target.port) : target.protocol === 'https:' ? 443 : 80;
    const socket = await connect(alternate(addresses).slice(0, ADDRESS_COUNT_MAX), port, signal);
    if (!isAllowed(socket.remoteAddress ?? '')) {
      socket.destroy();
      throw notAllowed(target);
    }
    return target.protocol === 'https:' ? await secure(socket, target.hostname, secureContext) : socket;
  };
}

/** A name with a private address fails like an unknown name, so that watchers can't learn which internal names exist. */
const notAllowed = ({ hostname }: Target) => new ConnectFailure(net.isIP(hostname) === 0 ? 'dns' : 'refused');

/** Why the text can't be used as `caCertificates`; undefined if it can. TLS would silently ignore what it can't read. */
export function certificatesProblem(text: string): string | undefined {
  const blocks = text.match(/-----BEGIN CERTIFICATE-----[^-]*-----END CERTIFICATE-----/g) ?? [];
  if (blocks.length === 0) return 'it holds no PEM certificate';
  const broken = blocks.findIndex((block) => {
    try {
      return new X509Certificate(block).raw.length === 0;
    } catch {
      return true;
    }
  });
  return broken === -1 ? undefined : `its certificate ${broken + 1} is damaged`;
}

/**
 * The certificate authorities for TLS to receivers: Node's default ones (including those that the machine adds), and
 * `caCertificates` (PEM).
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

/** The two families in turn (RFC 8305, section 4), because this machine may have no route to one of them. */
function alternate(addresses: readonly HostAddress[]): HostAddress[] {
  const first = addresses.filter(({ family }) => family === addresses[0]?.family);
  const other = addresses.filter(({ family }) => family !== addresses[0]?.family);
  return addresses.flatMap((_, index) => [first, other].flatMap((one) => one.slice(index, index + 1)));
}

async function rejectionAt(signal: AbortSignal): Promise<never> {
  if (!signal.aborted) await once(signal, 'abort');
  throw signal.reason;
}

function connect(addresses: readonly HostAddress[], port: number, signal: AbortSignal): Promise<net.Socket> {
  return new Promise((resolve, reject) => {
    const socket = net.connect({
      // A placeholder: `lookup` returns the addresses that were checked.
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
  // SNI (RFC 6066) and certificates omit the dot that may end a name, and SNI excludes IP addresses.
  const name = withoutTrailingDots(hostname);
  return new Promise((resolve, reject) => {
    const secured = tls.connect({
      socket,
      host: name,
      ...(net.isIP(name) === 0 ? { servername: name } : {}),
      secureContext,
      ALPNProtocols: ['http/1.1'],
      // Explicit, because NODE_TLS_REJECT_UNAUTHORIZED=0 in the environment would turn it off otherwise.
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
