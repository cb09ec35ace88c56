import assert from 'node:assert/strict';
import { createSecretKey, type KeyObject, randomBytes } from 'node:crypto';
import { test } from 'node:test';
import { createExcerpt } from '../../src/delivery/excerpt.ts';
import { generateApiKey } from '../../src/domain/api-key.ts';

/** A run of this many characters of a key's secret part counts as a leak. */
const RUN = 6;

const excerpt = createExcerpt();
const knowing = (authorization: string | undefined, ...hmacKeys: KeyObject[]) => ({
  authorization,
  hmacKeys,
});
const hexOf = (code: number) => code.toString(16).padStart(2, '0');

/** Ways in which a receiver may quote the key. */
function formsOf(key: string): string[] {
  const secret = secretOf(key);
  const rewrite = (write: (code: number) => string) =>
    Array.from(key, (character) => write(character.charCodeAt(0))).join('');
  return [
    ...[key, key.slice('cb_live_'.length), secret, `${secret}_`],
    ...[key.replaceAll('_', '%5F'), rewrite((code) => `%${hexOf(code)}`)],
    ...[key.replaceAll('_', '\\u005F'), rewrite((code) => `\\u00${hexOf(code)}`)],
    ...[rewrite((code) => `\\x${hexOf(code)}`), rewrite((code) => `&#${code};`)],
    ...[hexText(key), hexText(key).toUpperCase(), hexText(secret)],
    ...['', 'a', 'ab', 'Bearer ', 'user:'].flatMap((before) => [
      Buffer.from(before + key).toString('base64'),
      Buffer.from(before + key).toString('base64url'),
    ]),
    Buffer.from(secret).toString('base64'),
  ];
}

const secretOf = (key: string) => key.split('_')[3] ?? assert.fail(key);
const hexText = (text: string) => Buffer.from(text).toString('hex');

/** Everything that can be decoded from a text, and the text. */
function decodings(text: string): string {
  const words = text.match(/[\w+/-]+/g) ?? [];
  const decoded = words.flatMap((word) => [
    ...[0, 1, 2, 3].map((skip) => Buffer.from(word.slice(skip), 'base64').toString('latin1')),
    ...[0, 1].map((skip) => Buffer.from(word.slice(skip), 'hex').toString('latin1')),
  ]);
  return [text, ...decoded].join(' ');
}

function assertHidden(text: string, key: string): void {
  const secret = secretOf(key);
  const decoded = decodings(text);
  for (let at = 0; at + RUN <= secret.length; at += 1)
    assert.ok(!decoded.includes(secret.slice(at, at + RUN)), text);
}

test('the stored response contains no form of the API key: plain, escaped, base64, hexadecimal, or without its prefix', () => {
  for (let count = 0; count < 50; count += 1) {
    const { text: key } = generateApiKey();
    for (const form of formsOf(key)) {
      const shown = excerpt(Buffer.from(`expected <${form}>, not yours`), true, knowing(`Bearer ${key}`));
      assert.match(shown, /^expected <.*\[redacted\].*>, not yours$/, form);
      assertHidden(shown, key);
    }
  }
});

test('a response cut in the middle of the API key stores no part of it', () => {
  const { text: key } = generateApiKey();
  const forms = [
    ...[key, key.slice('cb_live_'.length), secretOf(key), hexText(secretOf(key))],
    Buffer.from(secretOf(key)).toString('base64'),
  ];
  for (const form of forms)
    for (let length = 1; length < form.length; length += 1)
      assertHidden(
        excerpt(Buffer.from(`it is ${form.slice(0, length)}`), false, knowing(`Bearer ${key}`)),
        key,
      );
});

test('ordinary responses are stored unchanged, up to 1 KiB', () => {
  const { text: key } = generateApiKey();
  for (const text of [
    '',
    '{"error":"bad signature"}',
    'é'.repeat(512),
    Buffer.alloc(700, 7).toString('base64'),
  ])
    assert.equal(excerpt(Buffer.from(text), true, knowing(`Bearer ${key}`)), text);
  assert.equal(excerpt(Buffer.from('é'.repeat(600)), true, knowing(undefined)), 'é'.repeat(512));
});

test('the stored response contains no form of a signing secret, and no part of one where it was cut', () => {
  for (let count = 0; count < 50; count += 1) {
    const bytes = randomBytes(32);
    const base64 = bytes.toString('base64');
    const whole = `whsec_${base64}`;
    const forms = [
      ...[
        whole,
        base64,
        bytes.toString('base64url'),
        bytes.toString('hex'),
        bytes.toString('hex').toUpperCase(),
      ],
      ...[encodeURIComponent(base64), base64.replaceAll('/', '\\/'), hexText(whole)],
      ...['', 'a', 'ab', 'secret:'].map((before) => Buffer.from(before + whole).toString('base64')),
      `${'x'.repeat(9)}${whole}`,
    ];
    const receiver = knowing(undefined, createSecretKey(randomBytes(32)), createSecretKey(bytes));
    const hidden = (shown: string, form: string) => {
      const decoded = decodings(shown);
      for (const secret of [base64.slice(0, 43), bytes.toString('latin1')])
        for (let at = 0; at + RUN <= secret.length; at += 1)
          assert.ok(!decoded.includes(secret.slice(at, at + RUN)), `${form}: ${shown}`);
    };
    for (const form of forms) hidden(excerpt(Buffer.from(`expected <${form}>`), true, receiver), form);
    for (const form of [
      whole,
      base64,
      bytes.toString('base64url'),
      base64.replaceAll('/', '\\/'),
      bytes.toString('hex'),
    ])
      for (const length of [8, 20, 30, form.length - 1])
        hidden(excerpt(Buffer.from(`it is ${form.slice(0, length)}`), false, receiver), form);
  }
});
