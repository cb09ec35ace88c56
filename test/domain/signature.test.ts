import assert from 'node:assert/strict';
import { createPublicKey, verify } from 'node:crypto';
import { test } from 'node:test';
import { Webhook, WebhookVerificationError } from 'standardwebhooks';
import {
  generateSigningBytes,
  publicKeyText,
  readSigningKeys,
  secretText,
  signMessage,
} from '../../src/domain/signature.ts';

const body =
  '{"amount":115792089237316195423570985008687907853269984665640564039457584007913129639935,"é":"\\u0000"}\n';
const timestamp = String(Math.floor(Date.now() / 1000));
const message = { id: '42', timestamp, body };
const newKeys = () => readSigningKeys(generateSigningBytes());
const headersOf = (signature: string) => ({
  'webhook-id': '42',
  'webhook-timestamp': timestamp,
  'webhook-signature': signature,
});

test('the official library of Standard Webhooks accepts a signature, and refuses it for any other message', () => {
  const keys = newKeys();
  const webhook = new Webhook(secretText(keys));
  const headers = headersOf(signMessage(message, [keys]));
  assert.deepEqual(webhook.verify(body, headers), JSON.parse(body));
  const refused: [Webhook, string, Record<string, string>][] = [
    [webhook, body.replace('1', '2'), headers],
    [webhook, body, { ...headers, 'webhook-id': '43' }],
    [webhook, body, { ...headers, 'webhook-timestamp': String(Number(timestamp) + 1) }],
    [new Webhook(secretText(newKeys())), body, headers],
  ];
  for (const [one, text, others] of refused)
    assert.throws(() => one.verify(text, others), WebhookVerificationError);
});

test('the public key alone is enough to verify a webhook', () => {
  const keys = newKeys();
  const signature = signMessage(message, [keys]);
  assert.ok(isSignedBy(publicKeyText(keys), signature, `42.${timestamp}.${body}`));
  assert.ok(!isSignedBy(publicKeyText(keys), signature, `42.${timestamp}.${body} `));
  assert.ok(!isSignedBy(publicKeyText(newKeys()), signature, `42.${timestamp}.${body}`));
});

test('during a rotation, a receiver can verify with any of the secrets or public keys', () => {
  const [present, former] = [newKeys(), newKeys()];
  const signature = signMessage(message, [present, former]);
  assert.match(signature, /^v1,\S{44} v1a,\S{88} v1,\S{44} v1a,\S{88}$/);
  for (const keys of [present, former]) {
    assert.ok(new Webhook(secretText(keys)).verify(body, headersOf(signature)));
    assert.ok(isSignedBy(publicKeyText(keys), signature, `42.${timestamp}.${body}`));
  }
});

test('without a private key a webhook is signed with the secrets alone', () => {
  const { hmacKey } = newKeys();
  assert.match(signMessage(message, [{ hmacKey }, { hmacKey }]), /^v1,\S{44} v1,\S{44}$/);
});

test('secrets and public keys have the form of Standard Webhooks, and the key pair matches RFC 8032', () => {
  const hmacKey = Buffer.alloc(32, 7);
  const privateKey = Buffer.from('9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60', 'hex');
  const keys = readSigningKeys(Buffer.concat([hmacKey, privateKey]));
  assert.equal(secretText(keys), `whsec_${hmacKey.toString('base64')}`);
  const publicKey = Buffer.from('d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a', 'hex');
  assert.equal(publicKeyText(keys), `whpk_${publicKey.toString('base64')}`);
});

/** Verifies like a receiver that has only the text of the public key. */
function isSignedBy(publicKeyText: string, signature: string, content: string): boolean {
  const x = Buffer.from(publicKeyText.replace(/^whpk_/, ''), 'base64').toString('base64url');
  const key = createPublicKey({ key: { kty: 'OKP', crv: 'Ed25519', x }, format: 'jwk' });
  return signature
    .split(' ')
    .filter((one) => one.startsWith('v1a,'))
    .some((one) => verify(null, Buffer.from(content), key, Buffer.from(one.slice(4), 'base64')));
}
