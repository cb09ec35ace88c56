/**
 * How the console writes numbers and times.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { matches } from '../../console/src/api/filter.ts';
import { createEventReader } from '../../console/src/api/sse.ts';
import { formatAmount, formatDecimal, groupDigits, parseAmount } from '../../console/src/format/amount.ts';
import { csvCell, parseCsv, reportOf } from '../../console/src/format/csv.ts';
import { compare, sumOf } from '../../console/src/format/decimal.ts';
import { formatAge, formatAttempt, formatDuration, formatShare } from '../../console/src/format/number.ts';
import { formatQueued } from '../../console/src/format/queue.ts';
import { hostOf, shortAddress, visible, withoutScheme } from '../../console/src/format/short.ts';
import { formatCountdown, formatInstant, shiftMonth } from '../../console/src/format/time.ts';

/** Integers of up to 78 digits, the largest that a uint256 has. */
const amount = fc.bigInt({ min: 0n, max: 2n ** 256n - 1n }).map(String);
const decimals = fc.integer({ min: 0, max: 77 });

test('an amount in whole units loses no digit and gains none', () => {
  fc.assert(
    fc.property(amount, decimals, (units, scale) => {
      const text = formatAmount(units, scale);
      assert.match(text, /^\d{1,3}(,\d{3})*(\.\d*[1-9])?$/);
      assert.equal(parseAmount(text.replaceAll(',', ''), scale), units);
    }),
  );
});

test('a cut amount is the beginning of the whole one, never rounded, and says that it is cut', () => {
  fc.assert(
    fc.property(amount, decimals, fc.integer({ min: 0, max: 8 }), (units, scale, most) => {
      const whole = formatAmount(units, scale);
      const cut = formatAmount(units, scale, most);
      if (cut.endsWith('…')) assert.ok(whole.startsWith(cut.slice(0, -1)) && whole.length > cut.length - 1);
      else assert.equal(cut, whole);
    }),
  );
});

test('an amount without known decimals is the integer, in groups', () => {
  assert.equal(formatAmount('1234567', undefined), '1,234,567');
  assert.equal(formatAmount(`1${'0'.repeat(78)}`, 0).replaceAll(',', '').length, 79);
  assert.equal(groupDigits('1000'), '1,000');
});

test('an amount that is typed with more decimals than the token has is refused', () => {
  assert.equal(parseAmount('1.5', 6), '1500000');
  assert.equal(parseAmount('1,250.50', 6), '1250500000');
  assert.equal(parseAmount('0.0000001', 6), undefined);
  assert.equal(parseAmount('1,234,567', 0), '1234567');
  for (const text of ['', '-1', '1e3', '0x10', '1.2.3', '1,5', '1,500', '1 000', '1.5,0'])
    assert.equal(parseAmount(text, 6), undefined);
});

test('decimals are shown and added exactly', () => {
  assert.equal(formatDecimal('352766.94'), '352,766.94');
  assert.equal(formatDecimal('0.1234567891', 4), '0.1234…');
  assert.equal(sumOf(['0.1', '0.2']), '0.3');
  assert.equal(sumOf(['9007199254740993', '0.000000000000000001']), '9007199254740993.000000000000000001');
  assert.equal(sumOf(['1e-7', '1']), '1.0000001');
  assert.equal(compare('10.10', '10.1'), 0);
  assert.equal(compare('-1', '0'), -1);
});

test('a share is 100 only if nothing is missing', () => {
  assert.equal(formatShare(99_996, 100_000), '99.99');
  assert.equal(formatShare(5, 5), '100');
  assert.equal(formatShare(0, 5), '0.00');
  assert.equal(formatShare(0, 0), '–');
});

test('durations have the units that people read', () => {
  const examples: [number, string][] = [
    [96, '96 ms'],
    [1_340, '1.3 s'],
    [59_999, '59 s'],
    [21 * 60_000, '21 min'],
    [11_520_000, '3 h 12 min'],
    [3_600_000, '1 h'],
    [187_200_000, '2 d 4 h'],
  ];
  for (const [ms, text] of examples) assert.equal(formatDuration(ms), text);
  assert.equal(formatAttempt(10_000), '10.00 s');
  assert.equal(formatAge(400), '0 s');
});

test('times show the date only where it isn’t today, and countdowns never go below zero', () => {
  const now = { ms: Date.parse('2026-11-22T14:23:06Z'), zone: 'utc' as const };
  assert.equal(formatInstant(Date.parse('2026-11-22T14:22:45Z'), now), '14:22:45');
  assert.equal(formatInstant(Date.parse('2026-11-21T14:22:45Z'), now), '21 Nov 14:22');
  assert.equal(formatInstant(Date.parse('2025-11-21T14:22:45Z'), now), '21 Nov 2025 14:22');
  assert.equal(formatCountdown(874_000), '00:14:34');
  assert.equal(formatCountdown(-1), '00:00:00');
  assert.equal(formatCountdown(2 * 86_400_000 + 1), '2 d');
  assert.equal(shiftMonth('2026-01', -1), '2025-12');
});

test('short forms keep both ends', () => {
  assert.equal(shortAddress(`0x7a25${'0'.repeat(32)}9c3f`), '0x7a25…9c3f');
  assert.equal(hostOf('https://hooks.acme.example:443/v2'), 'hooks.acme.example');
  assert.equal(hostOf('https://hooks.acme.example:8443'), 'hooks.acme.example:8443');
});

test('hidden characters and foreign letters of a URL can’t deceive the eye', () => {
  assert.equal(visible('a\u202egpj.exe\u0000\n'), 'a⟨U+202E⟩gpj.exe⟨U+0000⟩\n');
  assert.equal(withoutScheme('https://hooks.acme.example/v2'), 'hooks.acme.example/v2');
  assert.equal(withoutScheme('https://аррӏе.com/x'), 'xn--80ak6aa92e.com/x');
  assert.equal(withoutScheme('https://acme.example/\u202egpj.exe'), 'acme.example/%E2%80%AEgpj.exe');
});

test('a CSV cell in quotes may contain separators and quotes', () => {
  const address = `0x${'a'.repeat(40)}`;
  const { lines, problems } = parseCsv(`"${address}","https://a.example/?x=1,2&y=""z""";\n=1+1,x\n`, '');
  assert.deepEqual(
    lines.map(({ body }) => body),
    [{ address, webhook_url: 'https://a.example/?x=1,2&y="z"' }],
  );
  assert.deepEqual(
    problems.map(({ line, text }) => [line, text]),
    [[2, '=1+1']],
  );
  assert.equal(csvCell('=1+1'), "'=1+1");
  assert.equal(csvCell('@a,b'), '"\'@a,b"');
  assert.equal(csvCell('0xab'), '0xab');
});

test('the columns of a CSV may be named after comments, and its lines may end in any way', () => {
  const address = `0x${'b2'.repeat(20)}`;
  for (const end of ['\n', '\r\n', '\r']) {
    const text = [
      'sep=;',
      '# mine',
      'address;webhook_url;watch_token;watch_coin',
      `${address};https://a.example;true;false`,
    ];
    const { lines, problems } = parseCsv(text.join(end), '');
    assert.deepEqual(
      lines.map(({ line, body }) => [line, body]),
      [[4, { address, webhook_url: 'https://a.example', watch_coin: false, watch_token: true }]],
    );
    assert.deepEqual(problems, []);
  }
});

test('a piece of a stream may be as long as a browser makes it, and only an event has a limit', () => {
  const read = createEventReader();
  const event = `id: 1\nevent: attempt\ndata: ${'x'.repeat(6_000)}\n\n`;
  assert.equal(read(event.repeat(400)).length, 400);
  assert.throws(() => read('x'.repeat(1_100_000)), /too long/);
});

test('a line of a CSV with a flag that is neither true nor false, or a column that is none, is refused', () => {
  const address = `0x${'a1'.repeat(20)}`;
  const read = (text: string) => {
    const { lines, problems } = parseCsv(text, 'https://hooks.example.com/all');
    return [lines.map(({ body }) => body), problems.map(({ line, message }) => `${line}: ${message}`)];
  };
  assert.deepEqual(read(`Address,Watch_Token\n${address},NO`), [
    [{ address, webhook_url: 'https://hooks.example.com/all', watch_token: false }],
    [],
  ]);
  assert.deepEqual(read(`${address},,y,`), [[], ['1: watch_coin is “y”. Write true or false.']]);
  const surplus = '1: The line has too many cells. Put a URL that contains a comma or a semicolon in quotes.';
  assert.deepEqual(read(`${address},,true,true,more`), [[], [surplus]]);
  assert.deepEqual(read(`${address},https://hooks.example.com/?ids=1,0`), [[], [surplus]]);
  const webhook_url = 'https://hooks.example.com/?ids=1,0';
  assert.deepEqual(read(`${address},"${webhook_url}"`), [[{ address, webhook_url }], []]);
  assert.match(
    JSON.stringify(read(`address,url\n${address},https://hooks.example.com/one`)),
    /2: .*column “url”/,
  );
});

test('a line of a CSV that watches the same as another one is refused, and one for other transfers or another URL isn’t', () => {
  const address = `0x${'a1'.repeat(20)}`;
  const { lines, problems } = parseCsv(
    [
      `${address},`,
      `${address.slice(2).toUpperCase()},https://hooks.example.com/all`,
      `${address},https://hooks.example.com/other`,
      `${address},,true,false`,
      `${address},HTTPS://HOOKS.example.com/./coins,yes,no`,
      `${address},https://hooks.example.com/coins,no,yes`,
      `${address},https://hooks.example.com/coins,true,true`,
    ].join('\n'),
    'https://hooks.example.com/all',
  );
  assert.deepEqual(
    lines.map(({ line }) => line),
    [1, 3, 5, 6],
  );
  assert.deepEqual(
    problems.map(({ line, message }) => `${line}: ${message}`),
    [
      '2: It watches the same as line 1. The receiver would get transfers twice.',
      '4: It watches the same as line 1. The receiver would get transfers twice.',
      '7: It watches the same as line 5. The receiver would get transfers twice.',
    ],
  );
});

test('the report of refused lines can be imported: as it is it is refused again, and corrected it is not', () => {
  const [first, second] = [`0x${'a1'.repeat(20)}`, `0x${'b2'.repeat(20)}`];
  const url = 'https://hooks.example.com/?a=1;2';
  const file = [
    `${first},"${url}",true`,
    `0x12,"${url}",,no`,
    `${first},"${url}",yes`,
    `${second},https://hooks.example.com/?ids=1,0`,
    `${second},https://hooks.example.com/?ids=a,b,true,true`,
    `${second},"${url}",maybe`,
  ].join('\n');
  const reportFor = (text: string) => {
    const { problems, columns } = parseCsv(text, '');
    return { problems, report: reportOf(problems, columns) };
  };
  const { problems, report } = reportFor(file);
  assert.deepEqual(
    problems.map(({ line }) => line),
    [2, 3, 4, 5, 6],
  );
  const again = parseCsv(report, '');
  assert.deepEqual(again.lines, []);
  const skipped = 'The line begins with #, so it is skipped. To import it, remove the #.';
  const kept = problems.map((one) => (one.line === 3 ? { ...one, message: skipped } : one));
  const reasons = (rows: typeof problems) => rows.map(({ cells, message }) => ({ cells, message }));
  assert.deepEqual(reasons(again.problems), reasons(kept));
  assert.deepEqual(reasons(parseCsv(reportOf(again.problems, again.columns), '').problems), reasons(kept));
  // A spreadsheet may write semicolons.
  const corrected = report.replace('0x12', second).replaceAll(/,(?=(?:[^"]|"[^"]*")*$)/g, ';');
  assert.deepEqual(
    parseCsv(corrected, '').lines.map(({ body }) => body),
    [{ address: second, webhook_url: url, watch_token: false }],
  );
  // The line that repeated another one, with another address.
  const other = parseCsv(report.replace(/^# (3,.*)0x(a1)+/m, `$1${second}`), '');
  assert.deepEqual(
    other.lines.map(({ body }) => body),
    [{ address: second, webhook_url: url, watch_coin: true }],
  );
  const named = reportFor(`Url,address\n${url},${first}`);
  assert.match(named.report, /^line,reason,url,address\n2,/);
  assert.equal(reportFor(named.report).report.replace(/\n3,/, '\n2,'), named.report);
});

const attemptEvent = (
  sender: string,
  receiver: string,
  watched_address: string | null,
  origin: string | null = null,
) => ({
  ...{
    id: 1,
    notification_id: 1,
    revision: 0,
    started_at: '',
    duration_ms: 1,
    requests: 1,
    outcome: 'success',
  },
  ...{ status: 200, response: '' },
  notification: {
    ...{ status: 'delivered' as const, type: 'COIN_TRANSFER', sender, receiver, amount: '1', asset: 'ETH' },
    ...{ hash: '0x1', block_number: 1, origin, watched_address_id: '1', watched_address },
    ...{ created_at: '', retry_count: 0, next_retry_at: null },
  },
});

test('a new attempt is in a list by receiver with the default port or without it', () => {
  const event = attemptEvent('0x1', '0x2', null, 'https://hooks.example:443');
  for (const origin of ['https://hooks.example:443', 'https://Hooks.example', 'https://hooks.example.'])
    assert.equal(matches(event, { origin }), true, origin);
  for (const origin of ['http://hooks.example', 'https://hooks.example:8443', 'hooks.example'])
    assert.equal(matches(event, { origin }), false, origin);
});

test('a new attempt is in a list by direction and address only with its watched address', () => {
  const [own, other] = [`0x${'a1'.repeat(20)}`, `0x${'b2'.repeat(20)}`];
  const directions = (one: ReturnType<typeof attemptEvent>) =>
    (['in', 'out'] as const).filter((direction) => matches(one, { direction }));
  assert.deepEqual(directions(attemptEvent(other, own, own)), ['in']);
  assert.deepEqual(directions(attemptEvent(own, other, own)), ['out']);
  assert.deepEqual(directions(attemptEvent(own, own, own)), ['in', 'out']);
  assert.deepEqual(directions(attemptEvent(own, other, null)), []);
  assert.deepEqual(
    [own, own.slice(2).toUpperCase(), other].map((address) =>
      matches(attemptEvent(own, other, own), { address }),
    ),
    [true, true, false],
  );
});

test('a line of a CSV is never lost: after a #, with an empty first cell, or under two columns of one name', () => {
  const address = `0X${'Ab'.repeat(20)}`;
  const webhook_url = 'https://hooks.example.com/a,b';
  const read = (text: string) => {
    const { lines, problems } = parseCsv(text, '');
    return [lines.map(({ body }) => body), problems.map(({ text: shown, message }) => `${shown} ${message}`)];
  };
  assert.deepEqual(read(`#mine\n#${address},https://a.example\n# ${address},https://a.example`), [
    [],
    [1, 2].map(() => `${address} The line begins with #, so it is skipped. To import it, remove the #.`),
  ]);
  const named = `watch_coin,address,webhook_url\n,${address},"${webhook_url}"`;
  assert.deepEqual(read(named), [[{ address, webhook_url }], []]);
  assert.deepEqual(read(`address,webhook_url,webhook_url\n${address},https://a.example,https://b.example`), [
    [],
    [`${address} The first line names the column “webhook_url” twice.`],
  ]);
});

test('tabs between cells in quotes separate them, and are no blanks around them', () => {
  const address = `0x${'a1'.repeat(20)}`;
  const { lines } = parseCsv(`"${address}"\t\t "true"`, 'https://a.example');
  const body = { address, webhook_url: 'https://a.example', watch_coin: true };
  assert.deepEqual(
    lines.map((line) => line.body),
    [body],
  );
});

test('an event has its data whatever line breaks of Unicode it contains', () => {
  const data = JSON.stringify({ response: 'a\u2028b\u2029c' });
  assert.deepEqual(createEventReader()(`id: 7\nevent: attempt\ndata: ${data}\n\n`), [
    { id: '7', type: 'attempt', data },
  ]);
});

test('counts of the queue that stopped at their maximum have a plus, and others have none', () => {
  const queue = { deferred: 100, held: 7, waiting: 100, due: 3 };
  const shown = (counts: number[], isComplete = false) =>
    formatQueued({ ...queue, is_complete: isComplete }, counts);
  assert.deepEqual([shown([100]), shown([7]), shown([7, 100]), shown([3])], ['100+', '7', '107+', '3']);
  assert.equal(shown([7, 100], true), '107');
});
