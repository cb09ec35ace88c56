import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { Fault } from '../../src/core/fault.ts';
import { comparisonAt, monthOf, monthPeriod, type Period, parseMonth } from '../../src/domain/month.ts';

const texts = ({ start, end }: Period) => [start.toISOString(), end.toISOString()];
const daysOf = ({ start, end }: Period) => (end.getTime() + 1 - start.getTime()) / 86_400_000;
const compare = (time: string) => {
  const { current, lastMonth, isFullMonth } = comparisonAt(new Date(time));
  return [...texts(current), ...texts(lastMonth), isFullMonth];
};
const anyTime = fc.date({
  min: new Date('0001-02-01T00:00:00.000Z'),
  max: new Date('9999-12-31T23:59:59.999Z'),
  noInvalidDate: true,
});

test('a month is four digits, a dash and two digits from 01 to 12 (spec 2.1)', () => {
  for (const text of ['2026-01', '2026-12', '0001-01', '9999-12']) assert.equal(parseMonth(text), text);
  const wrong = [
    '',
    '0000-00',
    '0000-01',
    '2026-00',
    '2026-13',
    '2026-1',
    '26-01',
    '2026-01-01',
    '2026-01 ',
    ' 2026-01',
    '2026/01',
    '２０２６-01',
    '+002026-01',
    '2026-01\n',
  ];
  for (const text of wrong) {
    assert.throws(
      () => parseMonth(text),
      (error) => error instanceof Fault && error.code === 'invalid',
      text,
    );
  }
});

test('every month has its calendar length, in leap years too', () => {
  const lengths = (
    [
      '2026-01',
      '2026-02',
      '2024-02',
      '2000-02',
      '1900-02',
      '2026-04',
      '2026-12',
      '0001-01',
      '9999-12',
    ] as const
  ).map((month) => daysOf(monthPeriod(month)));
  assert.deepEqual(lengths, [31, 28, 29, 29, 28, 30, 31, 31, 31]);
});

test('before the 28th, the same days of the previous month are compared, and from the 28th on whole months (spec 4.1)', () => {
  const cases: [time: string, compared: (string | boolean)[]][] = [
    ['2026-03-19T10:11:12.345Z', ['2026-03-01', '2026-03-19', '2026-02-01', '2026-02-19', false]],
    ['2026-01-01T00:00:00.000Z', ['2026-01-01', '2026-01-01', '2025-12-01', '2025-12-01', false]],
    ['2026-03-27T23:59:59.999Z', ['2026-03-01', '2026-03-27', '2026-02-01', '2026-02-27', false]],
    ['2026-03-28T00:00:00.000Z', ['2026-03-01', '2026-03-31', '2026-02-01', '2026-02-28', true]],
    ['2024-03-31T12:00:00.000Z', ['2024-03-01', '2024-03-31', '2024-02-01', '2024-02-29', true]],
    ['2026-02-28T12:00:00.000Z', ['2026-02-01', '2026-02-28', '2026-01-01', '2026-01-31', true]],
    ['2024-02-29T12:00:00.000Z', ['2024-02-01', '2024-02-29', '2024-01-01', '2024-01-31', true]],
    ['2026-01-31T23:59:59.999Z', ['2026-01-01', '2026-01-31', '2025-12-01', '2025-12-31', true]],
  ];
  for (const [time, [from, to, lastFrom, lastTo, isFull]] of cases) {
    const start = 'T00:00:00.000Z';
    const end = 'T23:59:59.999Z';
    assert.deepEqual(compare(time), [
      `${from}${start}`,
      `${to}${end}`,
      `${lastFrom}${start}`,
      `${lastTo}${end}`,
      isFull,
    ]);
  }
});

test('at any time the two periods are equal days or the whole of consecutive months, and the current one contains the time', () => {
  fc.assert(
    fc.property(anyTime, (now) => {
      const { current, lastMonth, isFullMonth } = comparisonAt(now);
      assert.ok(current.start <= now && now <= current.end);
      for (const { start, end } of [current, lastMonth]) {
        assert.equal(start.getUTCDate(), 1);
        assert.equal(monthOf(start), monthOf(end));
      }
      assert.equal(monthOf(new Date(current.start.getTime() - 1)), monthOf(lastMonth.start));
      assert.equal(isFullMonth, now.getUTCDate() >= 28);
      if (!isFullMonth)
        assert.deepEqual([daysOf(current), daysOf(lastMonth)], [now.getUTCDate(), now.getUTCDate()]);
      else
        for (const period of [current, lastMonth])
          assert.deepEqual(period, monthPeriod(monthOf(period.start)));
    }),
  );
});

test('months follow each other without gaps, and each time lies in its month', () => {
  fc.assert(
    fc.property(anyTime, (time) => {
      const { start, end } = monthPeriod(monthOf(time));
      assert.ok(start <= time && time <= end);
      assert.notEqual(monthOf(new Date(start.getTime() - 1)), monthOf(start));
      if (end.getUTCFullYear() < 9999 || end.getUTCMonth() < 11)
        assert.notEqual(monthOf(new Date(end.getTime() + 1)), monthOf(start));
    }),
  );
});
