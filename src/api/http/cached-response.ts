/**
 * A response as the bytes that are sent: uncompressed, and compressed after the first request that accepts it.
 */
import { createHash } from 'node:crypto';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { constants, createBrotliCompress, createGzip } from 'node:zlib';
import { bytesOf, digestOf, type LargeBody } from './large-bodies.ts';

export type PublicAnswer = {
  type: string;
  body: string | Buffer | LargeBody;
  /** Further headers, for example `link`. */
  headers?: Readonly<Record<string, string>>;
  /** The time of its data, if that is before the request. The `age` header counts from it. */
  asOf?: Date;
  /** How long it may be cached, if that is shorter than the time of its route. */
  cacheSecondsMax?: number;
};

export type Coding = 'br' | 'gzip' | 'identity';

/** The body in one content coding, with the headers that stay the same while it is cached. */
export type Variant = {
  body: Buffer | readonly Buffer[];
  bytes: number;
  headers: Readonly<Record<string, string>>;
};

export type CachedResponse = {
  /** The headers of the answer, without those that each variant adds. */
  headers: Readonly<Record<string, string>>;
  /** The first 132 bits of the SHA-256 of the uncompressed body. */
  digest: string;
  isCompressible: boolean;
  identity: Variant;
  /** A promise while it is being compressed. The identity if compression does not make it smaller. */
  compressed: { [coding in Coding]?: Variant | Promise<Variant> };
};

/** A smaller response fits into one packet anyway. */
const COMPRESSED_BYTES_MIN = 1_400;
/** Larger bodies are sent as a stream of pieces. */
const JOINED_BYTES_MAX = 1024 * 1024;
/** Measured with a leaderboard of 106 KB: 1.7 ms to 40.6 KB (gzip: 2.0 ms, 42.6 KB). Quality 5 takes 9.7 ms and saves nothing. */
const BROTLI_QUALITY = 4;

export async function toCachedResponse({ type, body, headers = {} }: PublicAnswer): Promise<CachedResponse> {
  const { pieces, digest } =
    typeof body === 'string' || Buffer.isBuffer(body) ? finished(body) : await body.finish();
  const bytes = pieces.reduce((sum, { length }) => sum + length, 0);
  const isCompressible = bytes >= COMPRESSED_BYTES_MIN;
  const identity: Variant = {
    body: joined(pieces, bytes),
    bytes,
    headers: {
      ...headers,
      'content-type': type,
      'content-length': String(bytes),
      etag: tagOf(digest, 'identity'),
      ...(isCompressible && { vary: 'accept-encoding' }),
    },
  };
  return { headers, digest, isCompressible, identity, compressed: {} };
}

/**
 * The variant in this coding: a promise the first time, which concurrent requests share. Compression runs in the thread
 * pool. `onCompressed` receives the bytes of the additional copy.
 */
export function variantOf(
  response: CachedResponse,
  coding: Coding,
  onCompressed: (bytes: number) => void,
): Variant | Promise<Variant> {
  if (coding === 'identity') return response.identity;
  response.compressed[coding] ??= compress(response, coding).then(
    (variant) => {
      response.compressed[coding] = variant;
      if (variant !== response.identity) onCompressed(variant.bytes);
      return variant;
    },
    (error: unknown) => {
      delete response.compressed[coding];
      throw error;
    },
  );
  return response.compressed[coding];
}

async function compress({ identity, digest }: CachedResponse, coding: 'br' | 'gzip'): Promise<Variant> {
  const encoder =
    coding === 'gzip'
      ? createGzip()
      : createBrotliCompress({
          params: {
            [constants.BROTLI_PARAM_QUALITY]: BROTLI_QUALITY,
            [constants.BROTLI_PARAM_SIZE_HINT]: identity.bytes,
          },
        });
  const pieces: Buffer[] = [];
  await pipeline(Readable.from(piecesOf(identity.body)), encoder, async (source: AsyncIterable<Buffer>) => {
    for await (const piece of source) pieces.push(piece);
  });
  const bytes = pieces.reduce((sum, { length }) => sum + length, 0);
  if (bytes >= identity.bytes) return identity;
  return {
    body: joined(pieces, bytes),
    bytes,
    headers: {
      ...identity.headers,
      'content-length': String(bytes),
      'content-encoding': coding,
      etag: tagOf(digest, coding),
    },
  };
}

export const piecesOf = (body: Variant['body']): readonly Buffer[] => (Buffer.isBuffer(body) ? [body] : body);

/** A strong tag differs for each coding (RFC 9110, section 8.8.3.3). */
export const tagOf = (digest: string, coding: Coding): string =>
  coding === 'identity' ? `"${digest}"` : `"${digest}-${coding}"`;

/**
 * The tag in If-None-Match that belongs to this response in any coding (RFC 9110, section 13.1.2; weak comparison), because
 * a client that has the response in another coding has it too. Undefined if no tag matches.
 */
export function matchTag(
  ifNoneMatch: string,
  { digest }: Pick<CachedResponse, 'digest'>,
  coding: Coding,
): string | undefined {
  if (ifNoneMatch.trim() === '*') return tagOf(digest, coding);
  const own = (['identity', 'br', 'gzip'] as const).map((one) => tagOf(digest, one));
  return ifNoneMatch.match(/"[^"]*"/g)?.find((tag) => own.includes(tag));
}

/** The coding of the response (RFC 9110, section 12.5.3). Brotli is preferred if the client weighs it like gzip. */
export function chooseCoding(acceptEncoding: string | undefined): Coding {
  if (acceptEncoding === undefined || acceptEncoding === '') return 'identity';
  const weights = new Map<string, number>();
  for (const part of acceptEncoding.toLowerCase().split(',')) {
    const [coding = '', ...parameters] = part.split(';').map((text) => text.trim());
    const weight = parameters.find((parameter) => parameter.startsWith('q='))?.slice(2);
    weights.set(coding, weight === undefined ? 1 : Number(weight));
  }
  const weightOf = (coding: string) => weights.get(coding) ?? weights.get('*') ?? 0;
  const [br, gzip] = [weightOf('br'), weightOf('gzip')];
  // A weight that is not a number rejects the coding.
  if (br > 0 && !(gzip > br)) return 'br';
  return gzip > 0 ? 'gzip' : 'identity';
}

function finished(body: string | Buffer) {
  const piece = typeof body === 'string' ? bytesOf(body) : body;
  return { pieces: [piece], digest: digestOf(createHash('sha256').update(piece)) };
}

/** A copy in its own allocation, because a small slice of Node's pool or a zlib buffer would keep 8 or 16 KiB alive. */
function joined(pieces: readonly Buffer[], bytes: number): Variant['body'] {
  if (bytes > JOINED_BYTES_MAX) return pieces;
  const whole = Buffer.allocUnsafeSlow(bytes);
  let offset = 0;
  for (const piece of pieces) offset += piece.copy(whole, offset);
  return whole;
}
