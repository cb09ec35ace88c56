/**
 * A webhook receiver as an integrator would write it: it checks the bearer key, reads the amount exactly, acts once for each `id`
 * and answers 2xx. It prints a line for each webhook. `/break` makes it fail and `/mend` recover, to show the retries.
 */
import { createHash, timingSafeEqual } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { formatUnits } from 'viem';
import { parseExact } from '../src/core/json.ts';
import { listenNear } from './free-port.ts';

/** Symbol and decimals of each asset. The key is the payload's `asset` in lower case. */
export type AssetFormats = ReadonlyMap<string, { symbol: string; decimals: number }>;

type SampleReceiver = {
  /** http://127.0.0.1:port */
  url: string;
  /** Resolves with the first accepted webhook. */
  first: Promise<void>;
  stop(): Promise<void>;
};

/** The fields of a notification that the receiver uses (spec 2.7). */
type Notification = {
  id: number;
  type: string;
  hash: string;
  sender: string;
  receiver: string;
  amount: bigint | undefined;
  asset: string;
};

/** A notification is shorter than 2 KiB. */
const BODY_BYTES_MAX = 64 * 1024;
/** The number of remembered ids, to recognize duplicates. A real integrator stores them in its database. */
const IDS_MAX = 10_000;

/** Listens on loopback. `preferredPort` 0 means any free port. */
export async function startSampleReceiver(options: {
  /** Another port is used if this one is taken. */
  preferredPort: number;
  /** Undefined until a key is issued. Nothing is accepted until then. */
  apiKey(): string | undefined;
  assets: AssetFormats;
  print(line: string): void;
  now(): Date;
}): Promise<SampleReceiver> {
  const { promise: first, resolve: onFirst } = Promise.withResolvers<void>();
  const attempts = new Map<number, { refused: number; accepted: number }>();
  let isBroken = false;

  const server = createServer((request, response) => {
    handle(request, response).catch((error: unknown) => {
      options.print(`receiver: ${String(error)}`);
      response.destroy();
    });
  });

  async function handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    if (request.method !== 'POST') return answer(response, 405);
    if (request.url === '/break' || request.url === '/mend') {
      isBroken = request.url === '/break';
      options.print(
        isBroken ? 'receiver broken: it answers 500 from now on' : 'receiver repaired: it answers 200 again',
      );
      return answer(response, 200);
    }
    const apiKey = options.apiKey();
    if (apiKey === undefined || !isSameSecret(request.headers.authorization ?? '', `Bearer ${apiKey}`)) {
      options.print('a request without the right key was refused (401)');
      return answer(response, 401);
    }
    const body = await readBody(request);
    const notification = body === undefined ? undefined : parseNotification(body);
    if (notification === undefined) return answer(response, 400);

    const seen = attempts.get(notification.id) ?? { refused: 0, accepted: 0 };
    const line = describeNotification(notification, options.assets);
    if (isBroken) {
      remember(attempts, notification.id, { ...seen, refused: seen.refused + 1 });
      options.print(`${timeOfDay(options.now())}  ${line}  refused with 500, attempt ${seen.refused + 1}`);
      return answer(response, 500);
    }
    remember(attempts, notification.id, { ...seen, accepted: seen.accepted + 1 });
    options.print(`${timeOfDay(options.now())}  ${line}${describeHistory(seen)}`);
    answer(response, 200);
    onFirst();
  }

  const port = await listenNear(server, options.preferredPort);
  return {
    url: `http://127.0.0.1:${port}`,
    first,
    async stop() {
      if (!server.listening) return;
      const closed = once(server, 'close');
      server.close();
      server.closeAllConnections();
      await closed;
    },
  };
}

/** Compares in constant time. */
function isSameSecret(given: string, expected: string): boolean {
  const digest = (text: string) => createHash('sha256').update(text).digest();
  return timingSafeEqual(digest(given), digest(expected));
}

async function readBody(request: IncomingMessage): Promise<string | undefined> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of request.iterator({ destroyOnReturn: false })) {
    bytes += chunk.length;
    if (bytes > BODY_BYTES_MAX) {
      request.resume(); // What is still to come is thrown away, so that the answer can be read.
      return undefined;
    }
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString('utf8');
}

/** `amount` is a JSON number of up to 78 digits, which plain JSON.parse would round. */
function parseNotification(body: string): Notification | undefined {
  let fields: unknown;
  try {
    fields = parseExact(body);
  } catch {
    return undefined;
  }
  if (typeof fields !== 'object' || fields === null || Array.isArray(fields)) return undefined;
  const { id, type, hash, sender, receiver, amount, asset }: Record<string, unknown> = { ...fields };
  if (typeof id !== 'number' || typeof type !== 'string' || typeof hash !== 'string') return undefined;
  if (typeof sender !== 'string' || typeof receiver !== 'string' || typeof asset !== 'string')
    return undefined;
  if (amount === null) return { id, type, hash, sender, receiver, asset, amount: undefined };
  if (typeof amount !== 'bigint' && !(typeof amount === 'number' && Number.isInteger(amount)))
    return undefined;
  return { id, type, hash, sender, receiver, asset, amount: BigInt(amount) };
}

function describeNotification(notification: Notification, assets: AssetFormats): string {
  const { id, type, sender, receiver, amount, asset } = notification;
  const format = assets.get(asset.toLowerCase());
  const shownAmount = amount === undefined ? '?' : formatUnits(amount, format?.decimals ?? 0);
  const shownAsset = format?.symbol ?? shorten(asset);
  const shownReceiver = receiver === '' ? 'a new contract' : shorten(receiver);
  const sum = `${shownAmount} ${shownAsset}`.padEnd(16);
  return `#${`${id}`.padEnd(5)} ${type.padEnd(14)} ${sum} ${shorten(sender)} → ${shownReceiver}`;
}

function describeHistory({ refused, accepted }: { refused: number; accepted: number }): string {
  if (accepted > 0) return `  seen before, ${accepted + 1} times now`;
  return refused > 0 ? `  accepted at attempt ${refused + 1}` : '';
}

function shorten(hex: string): string {
  return hex.length > 14 ? `${hex.slice(0, 6)}…${hex.slice(-4)}` : hex;
}

function timeOfDay(time: Date): string {
  return time.toISOString().slice(11, 19);
}

function remember<Key, Value>(map: Map<Key, Value>, key: Key, value: Value): void {
  map.delete(key);
  map.set(key, value);
  if (map.size <= IDS_MAX) return;
  const [oldest] = map.keys();
  if (oldest !== undefined) map.delete(oldest);
}

function answer(response: ServerResponse, status: number): void {
  response
    .writeHead(status, { 'content-type': 'application/json' })
    .end(status === 200 ? '{"ok":true}\n' : '{"ok":false}\n');
}
