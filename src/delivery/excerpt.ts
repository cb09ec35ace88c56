/**
 * The beginning of a receiver's response, as it is stored and shown: with API keys and signing secrets redacted, however the
 * receiver encodes them.
 */

import type { KeyObject } from 'node:crypto';
import { LRUCache } from 'lru-cache';

const EXCERPT_BYTES_MAX = 1024;
const REDACTED = '[redacted]';
/**
 * Text in the form of our keys or signing secrets, because a receiver that refuses a webhook may quote the one it expected.
 * Includes the characters that URL and JSON encoders produce from base64.
 */
const SECRET_FORM = /\b(cb_live|whsec|whsk)_[\w+/=%\\-]+/g;
/** No form of a key or secret is shorter, so ordinary answers such as `ok` need no look at the forms. */
const FORM_CHARACTERS_MIN = 32;
/** Building the forms of a key costs some 50 µs; kept, those of a key take a few KiB. A watcher has a key and one or two secrets. */
const KEYS_MAX = 1_024;

type KeyForms = { pattern: RegExp; texts: readonly string[] };

/** What the receiver knows of its webhook: the header that it got, and the keys of its signatures. */
type Known = { authorization: string | undefined; hmacKeys: readonly KeyObject[] };

/** `isWhole` is false when the response may continue. */
type Excerpt = (body: Buffer, isWhole: boolean, receiver: Known) => string;

/** Keeps the forms of the most recent keys. */
export function createExcerpt(): Excerpt {
  const known = new LRUCache<string, KeyForms>({ max: KEYS_MAX });

  function formsOf(key: string, make: (key: string) => KeyForms): KeyForms {
    const forms = known.get(key) ?? make(key);
    known.set(key, forms);
    return forms;
  }

  return (body, isWhole, { authorization, hmacKeys }) => {
    if (body.length === 0) return '';
    // PostgreSQL's text has no NUL.
    let text = body.toString('utf8').replaceAll('\0', '\ufffd');
    const key = authorization?.replace(/^Bearer /, '') ?? '';
    const isShort = isWhole && text.length < FORM_CHARACTERS_MIN;
    const forms = isShort
      ? []
      : [
          ...(key === '' ? [] : [formsOf(key, makeForms)]),
          ...hmacKeys.map((hmacKey) => formsOf(hmacKey.export().toString('base64'), formsOfSecret)),
        ];
    for (const { pattern } of forms) text = text.replace(pattern, REDACTED);
    if (!isWhole)
      text = withoutBeginningOf(
        forms.flatMap(({ texts }) => texts),
        text,
      );
    const bytes = Buffer.from(text.replace(SECRET_FORM, REDACTED)).subarray(0, EXCERPT_BYTES_MAX);
    // Leaves out a character that the cut divides.
    return new TextDecoder().decode(bytes, { stream: true });
  };
}

/**
 * In `cb_live_<id>_<secret>_<checksum>`, finds the secret part with its neighbors: plain, with some or all characters escaped, in
 * hexadecimal, and in base64, where it may start at any of three offsets within a longer text.
 */
function makeForms(key: string): KeyForms {
  const [, prefix = '', id = '', secret = key, checksum = ''] =
    /^([a-z]+_[a-z]+_)(\w+)_([^_]+)(_[^_]+)$/.exec(key) ?? [];
  const bytes = Buffer.from(secret);
  const hex = bytes.toString('hex');
  const base64 = [0, 1, 2].map((offset) => base64Within(bytes, offset));
  const escaped = [prefix, id === '' ? '' : `${id}_`].map((part) => `(?:${escapable(part)})?`).join('');
  const patterns = [
    `${escaped}${escapable(secret)}(?:${escapable(checksum)})?`,
    inAnyCase(hex),
    ...base64.map(inAnyAlphabet),
  ];
  return {
    pattern: new RegExp(patterns.join('|'), 'g'),
    texts: [key, `${id}_${secret}${checksum}`, secret, ...inBothCases(hex), ...base64.flatMap(alphabets)],
  };
}

/** The forms of a signing secret `whsec_<base64>`: its text as of a key, and its bytes. */
function formsOfSecret(base64: string): KeyForms {
  const text = base64.replace(/=+$/, '');
  const hex = [Buffer.from(base64, 'base64').toString('hex'), Buffer.from(text).toString('hex')];
  const within = [0, 1, 2].map((offset) => base64Within(Buffer.from(text), offset));
  const patterns = [
    `(?:${escapable('whsec_')})?(?:${inAnyAlphabet(text)}|${escapable(text)})(?:=|%3[Dd])*`,
    ...hex.map(inAnyCase),
    ...within.map(inAnyAlphabet),
  ];
  return {
    pattern: new RegExp(patterns.join('|'), 'g'),
    texts: [`whsec_${text}`, text, ...within].flatMap(alphabets).concat(hex.flatMap(inBothCases)),
  };
}

/** A pattern for base64, also with the characters for URLs (RFC 4648, section 5) and with escaped slashes. */
const inAnyAlphabet = (base64: string) =>
  base64.replaceAll(/[+/]/g, (sign) => (sign === '+' ? '[+-]' : '(?:\\/|\\\\\\/|_)'));

/** The text in base64, as for URLs, and with slashes as some JSON encoders and URL encoders write them. */
const alphabets = (text: string): string[] => [
  text,
  text.replaceAll('+', '-').replaceAll('/', '_'),
  text.replaceAll('/', '\\/'),
  text.replaceAll('+', '%2B').replaceAll('/', '%2F'),
  text.replaceAll('+', '%2b').replaceAll('/', '%2f'),
];

const inBothCases = (hex: string): string[] => [hex, hex.toUpperCase()];

/** A pattern for the text, with any of its characters escaped as in URLs, JSON, JavaScript or HTML. */
function escapable(text: string): string {
  return Array.from(text, (character) => {
    const code = character.charCodeAt(0);
    const digits = inAnyCase(code.toString(16).padStart(2, '0'));
    return `(?:${RegExp.escape(character)}|%${digits}|\\\\u00${digits}|\\\\x${digits}|&#(?:${code}|[xX]${digits});)`;
  }).join('');
}

/** A pattern for hexadecimal digits in upper and lower case. */
const inAnyCase = (digits: string) =>
  digits.replaceAll(/[a-f]/g, (digit) => `[${digit}${digit.toUpperCase()}]`);

/** The base64 characters that depend only on these bytes, when `offset` bytes precede them. */
function base64Within(bytes: Buffer, offset: number): string {
  const whole = Buffer.concat([Buffer.alloc(offset), bytes])
    .toString('base64')
    .replace(/=+$/, '');
  const first = Math.ceil((offset * 8) / 6);
  const last = Math.floor(((offset + bytes.length) * 8) / 6);
  return whole.slice(first, last);
}

/** The text without the beginning of a secret at its end, where the excerpt was cut. */
function withoutBeginningOf(secrets: readonly string[], text: string): string {
  if (secrets.length === 0) return text;
  const lengths = secrets.map((secret) => {
    for (let length = Math.min(secret.length - 1, text.length); length > 0; length -= 1)
      if (text.endsWith(secret.slice(0, length))) return length;
    return 0;
  });
  return text.slice(0, text.length - Math.max(...lengths));
}
