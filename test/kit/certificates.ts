/**
 * Temporary certificates that tests create on demand: X.509 v3 with elliptic-curve keys (RFC 5280), written in DER.
 */
import { generateKeyPairSync, type KeyObject, randomBytes, sign } from 'node:crypto';
import { isIPv4 } from 'node:net';

/** A private key and its certificate, both PEM. */
export type Credentials = { key: string; cert: string };

type Authority = {
  /** The authority's certificate (PEM), which a client must trust. */
  certificate: string;
  /** Issues a server certificate for these DNS names and IPv4 addresses. */
  issue(names: readonly string[], options?: { expired?: boolean }): Credentials;
};

const DAY_MS = 86_400_000;
const OID_COMMON_NAME = '550403';
const OID_BASIC_CONSTRAINTS = '551d13';
const OID_SUBJECT_ALTERNATIVE_NAME = '551d11';
const ECDSA_WITH_SHA256 = sequence(oid('2a8648ce3d040302'));

/** Creates a certificate authority that no client trusts yet. */
export function createAuthority(commonName = 'Chainbell test authority'): Authority {
  const issuer = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const isAuthority = extension(OID_BASIC_CONSTRAINTS, sequence(der(0x01, Buffer.from([0xff]))));
  const certificate = (subject: string, key: KeyObject, extensions: Buffer, notAfterMs: number): string => {
    const signed = sequence(
      der(0xa0, der(0x02, Buffer.from([2]))),
      der(0x02, Buffer.concat([Buffer.from([1]), randomBytes(8)])),
      ECDSA_WITH_SHA256,
      distinguishedName(commonName),
      sequence(generalizedTime(Date.now() - 2 * DAY_MS), generalizedTime(notAfterMs)),
      distinguishedName(subject),
      key.export({ type: 'spki', format: 'der' }),
      der(0xa3, sequence(extensions)),
    );
    const signature = sign('sha256', signed, issuer.privateKey);
    return pem('CERTIFICATE', sequence(signed, ECDSA_WITH_SHA256, der(0x03, Buffer.from([0]), signature)));
  };
  return {
    certificate: certificate(commonName, issuer.publicKey, isAuthority, Date.now() + DAY_MS),
    issue(names, options = {}) {
      const pair = generateKeyPairSync('ec', { namedCurve: 'P-256' });
      const alternatives = extension(OID_SUBJECT_ALTERNATIVE_NAME, sequence(...names.map(generalName)));
      const notAfterMs = Date.now() + (options.expired === true ? -DAY_MS : DAY_MS);
      return {
        key: pair.privateKey.export({ type: 'pkcs8', format: 'pem' }).toString(),
        cert: certificate(names[0] ?? 'nobody', pair.publicKey, alternatives, notAfterMs),
      };
    },
  };
}

function der(tag: number, ...content: Buffer[]): Buffer {
  const body = Buffer.concat(content);
  const length =
    body.length < 0x80
      ? [body.length]
      : body.length < 0x100
        ? [0x81, body.length]
        : [0x82, body.length >> 8, body.length & 0xff];
  return Buffer.concat([Buffer.from([tag, ...length]), body]);
}

function sequence(...content: Buffer[]): Buffer {
  return der(0x30, ...content);
}

function oid(hex: string): Buffer {
  return der(0x06, Buffer.from(hex, 'hex'));
}

function distinguishedName(commonName: string): Buffer {
  return sequence(der(0x31, sequence(oid(OID_COMMON_NAME), der(0x0c, Buffer.from(commonName)))));
}

function generalizedTime(ms: number): Buffer {
  return der(0x18, Buffer.from(`${new Date(ms).toISOString().slice(0, 19).replace(/[-T:]/g, '')}Z`));
}

function generalName(name: string): Buffer {
  return isIPv4(name) ? der(0x87, Buffer.from(name.split('.').map(Number))) : der(0x82, Buffer.from(name));
}

function extension(id: string, value: Buffer): Buffer {
  return sequence(oid(id), der(0x04, value));
}

function pem(label: string, content: Buffer): string {
  const lines = content.toString('base64').replace(/.{1,64}/g, '$&\n');
  return `-----BEGIN ${label}-----\n${lines}-----END ${label}-----\n`;
}
