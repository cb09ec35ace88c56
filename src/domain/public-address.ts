/**
 * Decides to which IP addresses a webhook may be sent: public ones, and those that the operator allows.
 */
import { isIP } from 'node:net';
import ipaddr from 'ipaddr.js';
import { Fault } from '../core/fault.ts';

/** A range of addresses: its first address and the length of its prefix in bits. */
export type Cidr = readonly [ipaddr.IPv4 | ipaddr.IPv6, number];

/** Reached from inside a cloud only, though no registry calls it special: the host agent of Azure. */
const CLOUD_INTERNAL: readonly Cidr[] = [parseCidr('168.63.129.16/32')];

/** All that IANA has given out for the public internet so far; the other seven eighths hold every private form. */
const GLOBAL_UNICAST: Cidr = parseCidr('2000::/3');

/**
 * True for an address literal of the public internet, or of a range in `allow`. False for every range of the IANA
 * special-purpose registries, for the forms of IPv6 that carry an IPv4 address (mapped ones are judged as the IPv4
 * address that the kernel would connect to), and for anything that is not an address.
 */
export function isPublicAddress(text: string, allow: readonly Cidr[]): boolean {
  // The zone of a link-local address (`fe80::1%eth0`) says which cable, not which address.
  const literal = text.replace(/%.*$/, '');
  // Stricter than the library, which reads `10` and `0177.1` as addresses too.
  if (isIP(literal) === 0) return false;
  const address = ipaddr.process(literal);
  if (allow.some((range) => isInside(address, range))) return true;
  // The library calls unassigned and IPv4-compatible IPv6 space (`::7f00:1`, `4000::1`) unicast as well.
  if (address.kind() === 'ipv6' && !isInside(address, GLOBAL_UNICAST)) return false;
  return address.range() === 'unicast' && !CLOUD_INTERNAL.some((range) => isInside(address, range));
}

/**
 * A range written as `10.0.0.0/8` or `fd00::/8`.
 * @throws Fault `invalid` when it is written otherwise.
 */
export function parseCidr(text: string): Cidr {
  const [address = '', bits = ''] = text.split('/', 2);
  if (isIP(address) === 0 || !/^\d{1,3}$/.test(bits) || !ipaddr.isValidCIDR(text)) {
    throw new Fault('invalid', `'${text}' is not a range of addresses. Write it like 10.0.0.0/8 or fd00::/8`);
  }
  return ipaddr.parseCIDR(text);
}

function isInside(address: ipaddr.IPv4 | ipaddr.IPv6, [network, bits]: Cidr): boolean {
  return address.kind() === network.kind() && address.match(network, bits);
}
