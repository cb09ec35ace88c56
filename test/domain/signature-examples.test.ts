/**
 * Runs the examples of docs/how-to/verify-signatures.md exactly as they are printed.
 */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import {
  generateSigningBytes,
  readSigningKeys,
  secretText,
  signMessage,
} from '../../src/domain/signature.ts';

const page = readFileSync(new URL('../../docs/how-to/verify-signatures.md', import.meta.url), 'utf8');
const hasPython = spawnSync('python3', ['--version']).status === 0;

const [keys, former] = [readSigningKeys(generateSigningBytes()), readSigningKeys(generateSigningBytes())];
const secret = secretText(keys);
const body =
  '{"amount":115792089237316195423570985008687907853269984665640564039457584007913129639935,"é":1}\n';
const timestamp = String(Math.floor(Date.now() / 1000));
const headers = {
  'webhook-id': '42',
  'webhook-timestamp': timestamp,
  'webhook-signature': signMessage({ id: '42', timestamp, body }, [former, keys]),
};
const old = String(Number(timestamp) - 301);
const calls = [
  { headers, body, expected: true },
  { headers, body: body.replace('1', '2'), expected: false },
  { headers: { ...headers, 'webhook-id': '43' }, body, expected: false },
  { headers: { ...headers, 'webhook-signature': 'v1, v1a,AAAA x é' }, body, expected: false },
  { headers: { 'webhook-id': '42', 'webhook-timestamp': timestamp }, body, expected: false },
  { headers: { ...headers, 'webhook-timestamp': 'x' }, body, expected: false },
  { headers: {}, body, expected: false },
  {
    headers: {
      ...headers,
      'webhook-timestamp': old,
      'webhook-signature': signMessage({ id: '42', timestamp: old, body }, [keys]),
    },
    body,
    expected: false,
  },
];
const input = JSON.stringify({ secret, calls });

function blockOf(language: string): string {
  const [, code = ''] = new RegExp(`^\`\`\`${language}\\n([\\s\\S]*?)^\`\`\``, 'm').exec(page) ?? [];
  assert.notEqual(code, '', `the page has an example in ${language}`);
  return code;
}

function run(program: string, args: readonly string[]): unknown {
  const { stdout, stderr, status } = spawnSync(program, args, { input, encoding: 'utf8' });
  assert.equal(status, 0, stderr);
  return JSON.parse(stdout);
}

test('the example for Node accepts a genuine webhook, and refuses changed, old and malformed ones', () => {
  const script = `${blockOf('js')}
    const { readFileSync } = await import('node:fs');
    const { secret, calls } = JSON.parse(readFileSync(0, 'utf8'));
    console.log(JSON.stringify(calls.map(({ headers, body }) => isGenuine(secret, headers, body))));`;
  assert.deepEqual(
    run(process.execPath, ['--input-type=module', '--eval', script]),
    calls.map(({ expected }) => expected),
  );
});

test('the example for Python accepts and refuses the same webhooks', {
  skip: !hasPython && 'there is no python3',
}, () => {
  const script = `${blockOf('python')}
import json, sys
given = json.load(sys.stdin)
print(json.dumps([is_genuine(given["secret"], one["headers"], one["body"].encode()) for one in given["calls"]]))`;
  assert.deepEqual(
    run('python3', ['-c', script]),
    calls.map(({ expected }) => expected),
  );
});
