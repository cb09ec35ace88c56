import assert from 'node:assert/strict';
import { test } from 'node:test';
import { findIsoTime } from '../../src/core/iso-time.ts';

test('a time gives its moment, and a day gives its first moment in UTC', () => {
  const times = {
    '2026-01-31T12:00:00Z': '2026-01-31T12:00:00.000Z',
    '2026-01-31T12:00Z': '2026-01-31T12:00:00.000Z',
    '2026-01-31T12:00:00.1234567Z': '2026-01-31T12:00:00.123Z',
    '2026-01-31T23:30:00-01:30': '2026-02-01T01:00:00.000Z',
    '1970-01-01': '1970-01-01T00:00:00.000Z',
    '2024-02-29': '2024-02-29T00:00:00.000Z',
    '2000-02-29': '2000-02-29T00:00:00.000Z',
    '2999-12-31T23:59:59.999Z': '2999-12-31T23:59:59.999Z',
  };
  for (const [text, iso] of Object.entries(times)) assert.equal(findIsoTime(text)?.toISOString(), iso, text);
});

test('an impossible day, a missing offset, a year out of range or trailing text gives no time', () => {
  const others = [
    ...['', '2026', '2026-01', '2026-1-1', '20260131', 'yesterday', '2026-01-31T12', '2026-01-31T12:00:00'],
    ...['2026-00-01', '2026-13-01', '2026-01-00', '2026-01-32', '2026-02-29', '2026-04-31', '2100-02-29'],
    ...['2026-01-31T24:01:00Z', '2026-01-31T12:60:00Z', '2026-01-31T12:00:61Z', '2026-01-31T12:00:00+25:00'],
    ...['0000-01-01', '1969-12-31', '3000-01-01', '9999-12-31T23:59:59Z', '+002026-01-31'],
    ...[
      '2026-01-31 12:00:00Z',
      '2026-01-31T12:00:00 01:00',
      '2026-01-31 ',
      ' 2026-01-31',
      '2026-01-31T12:00:00Zx',
    ],
  ];
  for (const text of others) assert.equal(findIsoTime(text), undefined, text);
});
