/**
 * Decides which URLs may be webhooks (spec 2.6). It doesn't resolve names, because a name can get another address later.
 * delivery/guard.ts checks the address of each connection.
 */
import { isIP } from 'node:net';
import { Fault } from '../core/fault.ts';
import { type Cidr, isPublicAddress } from './public-address.ts';

/** What the operator allows beyond `https` on public addresses, and denies of it. */
export type WebhookPolicy = {
  /** Allow plain http and names of one label (`receiver`), for development. */
  allowHttp: boolean;
  /** Private ranges that webhooks may reach. */
  allowCidrs: readonly Cidr[];
  /** Ranges that webhooks never reach, although they are public or allowed: by default none. */
  denyCidrs?: readonly Cidr[];
  /** Allowed ports. With `allowHttp`, the default list [443] also allows port 80 for plain http. */
  ports: readonly number[];
};

const NOT_ABSOLUTE = 'must be an absolute URL, such as https://example.com/hook';
export const URL_CHARACTERS_MAX = 2048;
/** The limits of the DNS, for a name as text without the dot that may end it (RFC 1035, section 2.3.4). */
const NAME_CHARACTERS_MAX = 253;
const LABEL_CHARACTERS_MAX = 63;

/**
 * Names that have a meaning only inside one machine or network, or none at all: mDNS (RFC 6762, and the private names in its
 * appendix G), names that ICANN will never delegate (`corp`, `home`, `mail`, `internal`), names of clusters and overlays
 * (RFC 7686, RFC 9476), reserved names (RFC 6761), and names of the DNS itself (RFC 3172, with `home.arpa`).
 * `example` (RFC 6761) is allowed, because documents and tests use it and it leads nowhere.
 */
const PRIVATE_SUFFIXES = [
  ...['local', 'localdomain', 'intranet', 'private', 'lan', 'corp', 'home', 'mail', 'internal'],
  ...['svc', 'consul', 'onion', 'alt', 'test', 'invalid', 'arpa'],
];

/**
 * Parses and normalizes a webhook's URL.
 * @throws Fault `invalid` if the policy doesn't allow it. The message says what to change.
 */
export function parseWebhookUrl(text: string, policy: WebhookPolicy): URL {
  // First, because the other checks of a very long text take long.
  if (text.length > URL_CHARACTERS_MAX) throw tooLong();
  // The URL parser would drop or escape them silently, but the stored and shown URL should be the one that is called.
  if (/[\s\p{Cc}\p{Cs}]/u.test(text))
    throw new Fault('invalid', 'must not contain spaces or control characters');
  const url = URL.parse(text);
  if (url === null) throw new Fault('invalid', NOT_ABSOLUTE);
  if (url.protocol !== 'https:' && !(policy.allowHttp && url.protocol === 'http:')) {
    throw new Fault(
      'invalid',
      policy.allowHttp ? 'must start with https:// or http://' : 'must start with https://',
    );
  }
  // The URL parser would take https:\\host, https:host and https:///host for https://host.
  if (/^[^?]*\\/.test(text)) throw new Fault('invalid', 'must not contain a backslash; write / instead');
  if (!/^https?:\/\/[^/]/i.test(text)) throw new Fault('invalid', NOT_ABSOLUTE);
  // The normalized form too, because escaping makes it longer.
  if (url.href.length > URL_CHARACTERS_MAX) throw tooLong();
  if (url.username !== '' || url.password !== '') {
    throw new Fault('invalid', 'must not contain a user name or password; the API key travels in a header');
  }
  if (url.href.includes('#'))
    throw new Fault('invalid', 'must not contain a fragment; remove the # and what follows');
  if (!isPortAllowed(url, policy)) {
    throw new Fault('invalid', `must not use port ${portOf(url)}; allowed: ${policy.ports.join(', ')}`);
  }
  checkHost(url.hostname, policy);
  return url;
}

const tooLong = () => new Fault('invalid', `must be at most ${URL_CHARACTERS_MAX} characters long`);

/** The receiver's origin: `scheme://host:port`, always with the port. */
export function webhookOrigin(url: string): string {
  const parsed = new URL(url);
  return `${parsed.protocol}//${withoutTrailingDots(parsed.hostname)}:${portOf(parsed)}`;
}

/** Whether the policy allows this URL's port with this URL's scheme. */
export function isPortAllowed(url: Pick<URL, 'protocol' | 'port'>, policy: WebhookPolicy): boolean {
  const port = portOf(url);
  if (policy.ports.includes(port)) return true;
  const isDefaultList = policy.ports.length === 1 && policy.ports[0] === 443;
  return policy.allowHttp && isDefaultList && url.protocol === 'http:' && port === 80;
}

function portOf({ protocol, port }: Pick<URL, 'protocol' | 'port'>): number {
  if (port !== '') return Number(port);
  return protocol === 'https:' ? 443 : 80;
}

/** Whether webhooks may reach this address literal. */
export const isReachable = (address: string, { allowCidrs, denyCidrs = [] }: WebhookPolicy): boolean =>
  isPublicAddress(address, allowCidrs, denyCidrs);

function checkHost(hostname: string, policy: WebhookPolicy): void {
  const host = withoutTrailingDots(hostname.replace(/^\[|\]$/g, ''));
  if (isIP(host) !== 0) {
    if (isReachable(host, policy)) return;
    throw new Fault(
      'invalid',
      isPublicAddress(host, policy.allowCidrs)
        ? 'must not point to an address that this service refuses; use another one'
        : 'must not point to a private or reserved address; use a public host name',
    );
  }
  const isLoopbackAllowed = isReachable('127.0.0.1', policy) || isReachable('::1', policy);
  if (isUnder(host, 'localhost')) {
    if (isLoopbackAllowed) return;
    throw new Fault('invalid', 'must not point to this machine; use a public host name');
  }
  if (PRIVATE_SUFFIXES.some((suffix) => isUnder(host, suffix))) {
    throw new Fault(
      'invalid',
      'must not use a reserved name or one of a private network; use a public host name',
    );
  }
  if (!host.includes('.') && !policy.allowHttp) {
    throw new Fault('invalid', 'must use a full host name, such as hooks.example.com');
  }
  const name = hostname.replace(/\.$/, '');
  const isInDns = name.split('.').every(({ length }) => length > 0 && length <= LABEL_CHARACTERS_MAX);
  if (!isInDns || name.length > NAME_CHARACTERS_MAX) {
    throw new Fault(
      'invalid',
      `must use a host name of at most ${NAME_CHARACTERS_MAX} characters, with 1 to ${LABEL_CHARACTERS_MAX} between its dots`,
    );
  }
}

function isUnder(host: string, suffix: string): boolean {
  return host === suffix || host.endsWith(`.${suffix}`);
}

/** The name without the dots that end it. */
export function withoutTrailingDots(host: string): string {
  let end = host.length;
  while (host[end - 1] === '.') end -= 1;
  return host.slice(0, end);
}
