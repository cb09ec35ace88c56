/**
 * Decides which IP addresses webhooks may be sent to: public ones, and those that the operator allows.
 */
import { isIP } from 'node:net';
import ipaddr from 'ipaddr.js';
import { Fault } from '../core/fault.ts';

/** A range of addresses: its first address and the length of its prefix in bits. */
export type Cidr = readonly [ipaddr.IPv4 | ipaddr.IPv6, number];

/** The prefix of IPv4-mapped addresses (RFC 4291, section 2.5.5.2). */
const MAPPED_BITS = 96;

/** The host agent of Azure. It is reachable only from inside the cloud, but no IANA registry lists it as special. */
const CLOUD_INTERNAL: readonly Cidr[] = [parseCidr('168.63.129.16/32')];

/** All IPv6 space that IANA has allocated to the public internet so far. Every private form is outside of it. */
const GLOBAL_UNICAST: Cidr = parseCidr('2000::/3');

/** IPv4 addresses as a network without IPv4 writes them (RFC 6052). Its name servers return them for names without IPv6 (RFC 6147). */
const NAT64: Cidr = parseCidr('64:ff9b::/96');

/**
 * True for an address literal of the public internet, or in a range of `allow`, unless it is in a range of `deny`. False for every
 * range of the IANA special-purpose registries, for IPv6 forms that embed an IPv4 address, and for any text that isn't an address. An
 * IPv4-mapped address and one of NAT64 are judged as the IPv4 address, because the kernel or the network would connect to that.
 */
export function isPublicAddress(text: string, allow: readonly Cidr[], deny: readonly Cidr[] = []): boolean {
  // The zone of a link-local address (`fe80::1%eth0`) names the interface. It isn't part of the address.
  const literal = text.replace(/%.*$/, '');
  // The library also accepts `10` and `0177.1` as addresses.
  if (isIP(literal) === 0) return false;
  const address = ipaddr.process(literal);
  const embedded = isInside(address, NAT64) && ipaddr.fromByteArray(address.toByteArray().slice(-4));
  if (deny.some((range) => isInside(address, range) || (embedded && isInside(embedded, range)))) return false;
  if (allow.some((range) => isInside(address, range))) return true;
  if (embedded) return isPublicAddress(embedded.toString(), allow);
  // The library also returns 'unicast' for unassigned and IPv4-compatible IPv6 space (`4000::1`, `::7f00:1`).
  if (address.kind() === 'ipv6' && !isInside(address, GLOBAL_UNICAST)) return false;
  return address.range() === 'unicast' && !CLOUD_INTERNAL.some((range) => isInside(address, range));
}

/**
 * Parses a range such as `10.0.0.0/8` or `fd00::/8`.
 * @throws Fault `invalid` for any other text.
 */
export function parseCidr(text: string): Cidr {
  const [address = '', bits = ''] = text.split('/', 2);
  if (isIP(address) === 0 || !/^\d{1,3}$/.test(bits) || !ipaddr.isValidCIDR(text)) {
    throw new Fault('invalid', `'${text}' is not a range of addresses. Write it like 10.0.0.0/8 or fd00::/8`);
  }
  const range = ipaddr.parseCIDR(text);
  const [network, prefix] = range;
  // Addresses of such a range are judged as IPv4 addresses.
  const isMapped = network instanceof ipaddr.IPv6 && network.isIPv4MappedAddress() && prefix >= MAPPED_BITS;
  return isMapped ? [network.toIPv4Address(), prefix - MAPPED_BITS] : range;
}

/** The text of a range, without the bits of its address that its prefix doesn't cover: `10.0.0.0/8` for `10.1.2.3/8`. */
export function networkOf([address, bits]: Cidr): string {
  const family = address.kind() === 'ipv4' ? ipaddr.IPv4 : ipaddr.IPv6;
  return `${family.networkAddressFromCIDR(`${address.toString()}/${bits}`).toString()}/${bits}`;
}

function isInside(address: ipaddr.IPv4 | ipaddr.IPv6, [network, bits]: Cidr): boolean {
  return address.kind() === network.kind() && address.match(network, bits);
}
