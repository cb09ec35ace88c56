/**
 * `http.adminToken`, the bearer token of the operator.
 */
import { createHash, timingSafeEqual } from 'node:crypto';

/** The token of an `Authorization: Bearer <token>` header. */
export const bearerOf = (authorization: string | undefined): string | undefined =>
  /^Bearer +(\S+) *$/i.exec(authorization ?? '')?.[1];

/** Returns whether an Authorization header has the token. Without a token, none has. */
export function createTokenCheck(token: string | undefined): (authorization: string | undefined) => boolean {
  if (token === undefined) return () => false;
  const wanted = digestOf(token);
  return (authorization) => {
    const given = bearerOf(authorization);
    return given !== undefined && timingSafeEqual(digestOf(given), wanted);
  };
}

/** Digests have one length, so comparing them takes the same time for every token. */
const digestOf = (token: string) => createHash('sha256').update(token).digest();
