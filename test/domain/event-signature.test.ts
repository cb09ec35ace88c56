import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { type AbiEvent, encodeAbiParameters, encodeEventTopics, parseAbiItem, toEventSelector } from 'viem';
import type { Hash, Hex } from '../../src/core/hex.ts';
import { TextError } from '../../src/core/text-error.ts';
import { decodeEvent, parseEventSignature, type RawLog } from '../../src/domain/event-signature.ts';

const texts = [
  'Transfer(address indexed from, address indexed to, uint256 value)',
  'event Swap(address indexed sender,uint256 amount0In,uint256 amount1In,uint256 amount0Out,uint256 amount1Out,address indexed to)',
  'Nothing()',
  'Voted(address indexed voter, uint256 id, uint8 support, uint weight, string reason)',
  'Moved(int24 tick, bool up, bytes4 kind, int value)',
  'Listed(uint256[] ids, address[3] who, bytes data, bytes32[] indexed roots, uint64 at)',
];

for (const text of texts) {
  test(`${text} has the topic that other libraries compute`, () => {
    const withEvent = text.startsWith('event ') ? text : `event ${text}`;
    assert.equal(parseEventSignature(text).topic, toEventSelector(parseAbiItem(withEvent) as AbiEvent));
  });
}

const mistakes: [marked: string, message: RegExp][] = [
  ['«Transfer»', /must be an event such as/],
  ['«»', /must be an event such as/],
  ['Paid(address user', /must end with "\)"/],
  ['Paid(address user) «returns»', /"returns" is unexpected/],
  ['Paid(address user) «anonymous»', /anonymous/],
  ['Paid(address user, «uint7 x»)', /"uint7" is not an ABI type/],
  ['Paid(«adress user»)', /"adress" is not an ABI type/],
  ['Paid(uint256 a, «uint256 a»)', /two arguments are named "a"/],
  ['Paid(«(uint256 a», uint256 b) pos)', /tuples/],
  ['Paid(uint256 a«,» )', /must be a type/],
];

for (const [marked, message] of mistakes) {
  test(`the error for ${marked} points at the marked part`, () => {
    const text = marked.replace(/[«»]/g, '');
    assert.throws(
      () => parseEventSignature(text),
      (error) => {
        assert.ok(error instanceof TextError);
        assert.match(error.message, message);
        if (marked.includes('«') && !marked.includes('«,»'))
          assert.equal(error.span.start, marked.indexOf('«'));
        return true;
      },
    );
  });
}

test('more than three indexed arguments are refused', () => {
  const four = ['a', 'b', 'c', 'd'].map((name) => `uint256 indexed ${name}`);
  assert.throws(() => parseEventSignature(`Paid(${four.join()})`), /more than 3 indexed/);
});

test('arguments that another library encoded are decoded, and unsupported ones are skipped', () => {
  const text =
    'event All(address indexed user, string note, int24 tick, bool indexed up, uint256[2] pair, bytes4 kind, uint128 amount, int256 delta, bytes rest, uint64[] list, address to)';
  const signature = parseEventSignature(text);
  const abi = parseAbiItem(text) as never;
  const addresses = fc
    .bigInt({ min: 0n, max: 2n ** 160n - 1n })
    .map((one): Hex => `0x${one.toString(16).padStart(40, '0')}`);
  fc.assert(
    fc.property(
      addresses,
      fc.string(),
      fc.integer({ min: -(2 ** 23), max: 2 ** 23 - 1 }),
      fc.boolean(),
      fc.bigInt({ min: 0n, max: 2n ** 128n - 1n }),
      fc.bigInt({ min: -(2n ** 255n), max: 2n ** 255n - 1n }),
      addresses,
      (user, note, tick, up, amount, delta, to) => {
        const topics = encodeEventTopics({ abi: [abi], args: { user, up } } as never) as Hash[];
        const types = [
          'string',
          'int24',
          'uint256[2]',
          'bytes4',
          'uint128',
          'int256',
          'bytes',
          'uint64[]',
          'address',
        ];
        const data = encodeAbiParameters(
          types.map((type) => ({ type })),
          [note, tick, [1n, 2n], '0x01020304', amount, delta, '0xff', [1n], to],
        );
        const decoded = decodeEvent(signature, { topics, data });
        const [none] = [undefined];
        assert.deepEqual(decoded, [
          user,
          none,
          BigInt(tick),
          up,
          none,
          '0x01020304',
          amount,
          delta,
          none,
          none,
          to,
        ]);
      },
    ),
  );
});

test('a log whose encoding does not match the signature is not decoded', () => {
  const signature = parseEventSignature('Paid(address indexed user, uint8 kind, bool isFinal)');
  const word = (digits: string) => digits.padStart(64, '0');
  const user: Hash = `0x${word('a1')}`;
  const good: RawLog = { topics: [signature.topic, user], data: `0x${word('ff')}${word('1')}` };
  assert.deepEqual(decodeEvent(signature, good), [`0x${'a1'.padStart(40, '0')}`, 255n, true]);
  const bad: Partial<RawLog>[] = [
    { topics: [signature.topic] },
    { topics: [signature.topic, user, user] },
    { topics: [signature.topic, `0x${'f'.repeat(64)}`] },
    { data: '0x' },
    { data: `0x${word('ff')}` },
    { data: `0x${word('100')}${word('1')}` },
    { data: `0x${word('ff')}${word('2')}` },
  ];
  for (const parts of bad) assert.equal(decodeEvent(signature, { ...good, ...parts }), undefined);
});

test('any text gives a signature, or an error with a position inside the text', () => {
  const words = [
    'Paid',
    '(',
    ')',
    ',',
    'address',
    'uint256',
    'indexed',
    ' a',
    ' b',
    '[',
    ']',
    'event ',
    'tuple',
  ];
  fc.assert(
    fc.property(
      fc.oneof(
        fc.string(),
        fc.array(fc.constantFrom(...words)).map((all) => all.join('')),
      ),
      (text) => {
        try {
          parseEventSignature(text);
        } catch (error) {
          assert.ok(error instanceof TextError, String(error));
          assert.ok(error.span.start >= 0 && error.span.start <= Math.max(0, text.length));
        }
      },
    ),
    { numRuns: 2_000 },
  );
});
