/**
 * The special-purpose address registries of IANA (IPv4, IPv6), with multicast, reserved and cloud-internal ranges. A webhook
 * must never reach these addresses.
 */

export const specialIpv4 = [
  '0.0.0.0/8',
  '10.0.0.0/8',
  '100.64.0.0/10',
  '127.0.0.0/8',
  '168.63.129.16/32',
  '169.254.0.0/16',
  '172.16.0.0/12',
  '192.0.0.0/24',
  '192.0.2.0/24',
  '192.31.196.0/24',
  '192.52.193.0/24',
  '192.88.99.0/24',
  '192.168.0.0/16',
  '192.175.48.0/24',
  '198.18.0.0/15',
  '198.51.100.0/24',
  '203.0.113.0/24',
  '224.0.0.0/4',
  '240.0.0.0/4',
  '255.255.255.255/32',
] as const;

export const specialIpv6 = [
  '::/128',
  '::1/128',
  '::/96',
  '::ffff:0:0:0/96',
  '64:ff9b:1::/48',
  '100::/64',
  '100:0:0:1::/64',
  '2001::/23',
  '2001::/32',
  '2001:1::1/128',
  '2001:1::2/128',
  '2001:1::3/128',
  '2001:2::/48',
  '2001:3::/32',
  '2001:4:112::/48',
  '2001:10::/28',
  '2001:20::/28',
  '2001:30::/28',
  '2001:db8::/32',
  '2002::/16',
  '2620:4f:8000::/48',
  '3fff::/20',
  '4000::/2',
  '5f00::/16',
  'fc00::/7',
  'fe80::/10',
  'fec0::/10',
  'ff00::/8',
] as const;

/** The forms of an IPv4 address inside an IPv6 address. Some networks route each form to the IPv4 address. */
export function embeddedForms(address: number): Record<string, string> {
  const [high, low] = [Math.floor(address / 65_536), address % 65_536];
  const hex = `${high.toString(16)}:${low.toString(16)}`;
  return {
    plain: dottedOf(address),
    mapped: `::ffff:${dottedOf(address)}`,
    mappedHex: `::ffff:${hex}`,
    compatible: `::${hex}`,
    translated: `::ffff:0:${hex}`,
    sixToFour: `2002:${hex}::1`,
    teredo: `2001:0:0:0:0:0:${(0xffff - high).toString(16)}:${(0xffff - low).toString(16)}`,
    nat64: `64:ff9b::${hex}`,
    nat64Local: `64:ff9b:1::${hex}`,
  };
}

/** The first and the last address of an IPv4 range, as numbers. */
export function boundsOf(range: string): { first: number; last: number } {
  const [network = '', bits = ''] = range.split('/');
  const first = network.split('.').reduce((sum, octet) => sum * 256 + Number(octet), 0);
  return { first, last: first + 2 ** (32 - Number(bits)) - 1 };
}

function dottedOf(address: number): string {
  return [24, 16, 8, 0].map((shift) => Math.floor(address / 2 ** shift) % 256).join('.');
}
