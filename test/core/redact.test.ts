/**
 * Errors of nodes, proxies and clients that repeat parts of a node's URL.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createLog } from '../../src/core/log.ts';
import { redactorOf } from '../../src/core/redact.ts';

const KEY = 'f00dFeed0123456789';
/** Each URL, texts that repeat parts of it, and the parts that must be hidden. */
const ATTACKS: { url: string; texts: string[]; secrets: RegExp }[] = [
  {
    url: `https://node.example/v2/${KEY}`,
    texts: [
      `no project ${KEY}`,
      `no project ${KEY.toLowerCase()}`,
      `POST /V2/${KEY.toUpperCase()} HTTP/1.1`,
      String.raw`{"path":"\/v2\/${KEY}"}`,
      `https%3A%2F%2Fnode.example%2Fv2%2F${KEY}`,
      `project=${KEY}&x, "${KEY}", (${KEY}).`,
    ],
    secrets: /feed/i,
  },
  {
    url: 'https://node.example/rpc;key=sesame%2D77/a%2Fhidden99?token=a+b%2Bc&plain&flag77',
    texts: [
      'key sesame-77',
      'key sesame%2d77',
      'key sesame%252D77',
      'part hidden99',
      'token a+b+c',
      'token a+b%2bc',
      'token a%2Bb%2Bc',
      'plain is no key, nor is flag77',
    ],
    secrets: /sesame|hidden|a\+b|a%2bb|plain|flag/i,
  },
  {
    url: 'https://oper@tor:p@ss%40w%C3%B6rd%zz@node.example/',
    texts: [
      'user oper@tor',
      'user oper%40tor',
      'password p@ss@wörd%zz',
      'password p%40ss%40w%c3%b6rd%zz',
      'login oper@tor:p@ss@wörd%zz',
      `https://oper%40tor:p%40ss%40w%C3%B6rd%zz@node.example/`,
    ],
    secrets: /oper|p@ss|p%40ss|rd%zz/i,
  },
  {
    url: 'https://operator:pa?>ss>>?@node.example/',
    texts: [
      ...['base64', 'base64url'].map(
        (form) =>
          `Authorization: Basic ${Buffer.from('operator:pa?>ss>>?').toString(form as BufferEncoding)}`,
      ),
      `Basic ${Buffer.from('operator:pa?>ss>>?').toString('base64').replace(/=+$/, '')} is refused`,
    ],
    secrets: /b3BlcmF0b3I|operator/,
  },
  {
    url: 'http://[fd00::7]:8545/k3y9?x=y0urs#fr4gment',
    texts: ['no k3y9', 'x is y0urs', 'http://[fd00::7]:8545/k3y9?x=y0urs#fr4gment', 'fr4gment'],
    secrets: /k3y9|y0urs|fr4g/,
  },
];

test('an error that repeats a URL in any spelling keeps only its host', () => {
  for (const { url, texts, secrets } of ATTACKS) {
    const redact = redactorOf(
      url.replace(/oper@tor:p@ss/, 'oper%40tor:p%40ss').replace('pa?>ss>>?', 'pa%3F%3Ess%3E%3E%3F'),
    );
    for (const text of texts) assert.doesNotMatch(redact(text), secrets, `${url}: ${text}`);
  }
});

test('words that are not secrets stay unchanged', () => {
  const redact = redactorOf('https://node.example/v2/rpc/eth');
  const text = 'https://node.example: eth_getLogs v2 over rpc: header not found (-32000)';
  assert.equal(redact(text), text);
});

test('a log hides secrets in fields with texts of other services', () => {
  let text = '';
  const log = createLog(
    { level: 'warn', format: 'pretty' },
    { write: (line) => (text += line) },
    redactorOf(`https://node.example/v2/${KEY}`),
  );
  log.warn({ error: `no project ${KEY}`, block: 7 }, 'loop.fault');
  assert.match(text, /loop\.fault.*"block":7.*"no project …"/s);
});
