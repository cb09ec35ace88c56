/**
 * Determines from node URLs whether they belong to the same endpoint, node or operator.
 */

/** Loopback names. The URL parser has already normalized the spelling of addresses. */
const LOOPBACK = /^(localhost|.+\.localhost|127\.0\.0\.1|0\.0\.0\.0|\[::1\]|\[::\]|\[::ffff:(7f00:1|0:0)\])$/;
/** Second-level domains under country codes, as in example.co.uk. */
const GENERIC_LABELS = new Set(['ac', 'co', 'com', 'edu', 'go', 'gov', 'ne', 'net', 'or', 'org']);

/** Whether both URLs have the same host and port. A ws URL then belongs to that HTTP node. */
export function isOneEndpoint(one: string, other: string): boolean {
  return endpointOf(new URL(one)) === endpointOf(new URL(other));
}

/**
 * A key that is equal for URLs of the same node, as far as URLs can show it. It ignores user, query, fragment, default port,
 * upper case, trailing slashes, and which name of this machine is used. It includes the path, because a path may lead to
 * another node.
 */
export function nodeKeyOf(url: URL): string {
  return `${endpointOf(url)}/${url.pathname.split('/').filter(Boolean).join('/')}`;
}

/** The registered domain of the host, guessed from its labels, or its address. */
export function operatorOf(url: URL): string {
  const host = hostOf(url);
  const labels = host.split('.');
  if (host.startsWith('[') || /^\d+$/.test(labels.at(-1) ?? '')) return host;
  const [second = '', top = ''] = labels.slice(-2);
  return labels.slice(top.length === 2 && GENERIC_LABELS.has(second) ? -3 : -2).join('.');
}

function endpointOf(url: URL): string {
  const usual = url.protocol === 'https:' || url.protocol === 'wss:' ? '443' : '80';
  return `${hostOf(url)}:${url.port === '' ? usual : url.port}`;
}

function hostOf({ hostname }: URL): string {
  const host = hostname.toLowerCase().replace(/\.$/, '');
  return LOOPBACK.test(host) ? 'localhost' : host;
}
