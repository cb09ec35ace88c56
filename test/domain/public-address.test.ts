import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { Fault } from '../../src/core/fault.ts';
import { isPublicAddress, parseCidr } from '../../src/domain/public-address.ts';
import { boundsOf, embeddedForms, specialIpv4 } from '../kit/special-ranges.ts';

const specialAddress = fc
  .tuple(fc.constantFrom(...specialIpv4), fc.nat({ max: 0xffff_ffff }))
  .map(([range, noise]) => {
    const { first, last } = boundsOf(range);
    return first + (noise % (last - first + 1));
  });

test('no address of a special-purpose IPv4 range is public, in any IPv6 form either', () => {
  fc.assert(
    fc.property(specialAddress, (address) => {
      for (const [form, text] of Object.entries(embeddedForms(address)))
        assert.equal(isPublicAddress(text, []), false, `${form} ${text}`);
    }),
    { numRuns: 2000 },
  );
});

test('IPv6 addresses outside the assigned global space or in its special ranges are not public', () => {
  const refused = [
    ['::', '::1', '::7f00:1', '::a9fe:a9fe', '::5efe:7f00:1', '0:1:0:1:0:1:0:1', '1:0:1:0:1:0:1:0'],
    ['100::1', '64:ff9b:1::808:808', '4000::1', '5f00::1', '8000::1', 'fc00::1', 'fd00:ec2::254', 'fe80::1'],
    [
      'fe80::1%eth0',
      'fec0::1',
      'ff02::1',
      '2001::1',
      '2001:2::1',
      '2001:3::1',
      '2001:4:112::1',
      '2001:10::1',
    ],
    ['2001:20::1', '2001:30::1', '2001:db8::1', '2002::1', '2620:4f:8000::1', '3fff::1'],
  ].flat();
  for (const text of refused) assert.equal(isPublicAddress(text, []), false, text);
});

test('ordinary addresses are public, up to the bounds of the special ranges', () => {
  const accepted = [
    ['1.1.1.1', '8.8.8.8', '9.255.255.255', '11.0.0.0', '100.63.255.255', '100.128.0.0', '126.255.255.255'],
    ['128.0.0.0', '168.63.129.15', '168.63.129.17', '172.15.255.255', '172.32.0.0', '192.167.255.255'],
    [
      '198.17.255.255',
      '198.20.0.0',
      '223.255.255.255',
      '::ffff:8.8.8.8',
      '64:ff9b::808:808',
      '2606:4700::1111',
      '2a00:1450:4001::1',
    ],
  ].flat();
  for (const text of accepted) assert.equal(isPublicAddress(text, []), true, text);
});

test('text that is not a full address literal is not public, even if other parsers accept it', () => {
  for (const text of [
    '',
    '8',
    '8.8',
    '010.1.1.1',
    '0x8.8.8.8',
    '134744072',
    ' 8.8.8.8',
    '8.8.8.8:80',
    '[2606:4700::1]',
    'example.com',
  ])
    assert.equal(isPublicAddress(text, []), false, text);
});

test('an allowed range allows only its addresses', () => {
  const allow = [parseCidr('10.1.0.0/16'), parseCidr('fd00::/8')];
  for (const text of ['10.1.2.3', '::ffff:10.1.2.3', '64:ff9b::a01:203', 'fd00::1'])
    assert.equal(isPublicAddress(text, allow), true, text);
  for (const text of ['10.2.0.1', 'fc00::1', '127.0.0.1', '::a01:203', '2002:a01:203::1'])
    assert.equal(isPublicAddress(text, allow), false, text);
});

test('a denied range goes before what is public or allowed, in any form of its addresses', () => {
  const allow = [parseCidr('10.0.0.0/8')];
  const deny = ['8.8.8.0/24', '::ffff:10.1.0.0/112', '2606:4700::/32'].map(parseCidr);
  for (const text of [
    '8.8.8.8',
    '::ffff:8.8.8.8',
    '64:ff9b::808:808',
    '10.1.2.3',
    '64:ff9b::a01:203',
    '2606:4700::1',
  ])
    assert.equal(isPublicAddress(text, allow, deny), false, text);
  for (const text of ['8.8.9.8', '64:ff9b::808:908', '10.2.2.3', '2606:4701::1'])
    assert.equal(isPublicAddress(text, allow, deny), true, text);
});

test('a range is parsed exactly as written, or refused', () => {
  assert.equal(isPublicAddress('127.0.0.9', [parseCidr('127.0.0.0/8')]), true);
  for (const text of [
    '',
    '10',
    '10/8',
    '10.0.0.0',
    '10.0.0.0/33',
    '10.0.0.0/-1',
    '10.0.0.0/8/8',
    '::1/129',
    'localhost/8',
  ]) {
    assert.throws(
      () => parseCidr(text),
      (error) => error instanceof Fault && error.code === 'invalid',
      text,
    );
  }
});
