/**
 * The API behind a real socket, for tests of its bulk routes.
 */
import { once } from 'node:events';
import { type ClientRequest, type IncomingMessage, request } from 'node:http';
import { createInterface } from 'node:readline';
import type { WatcherLimits } from '../../../src/api/context.ts';
import type { Address } from '../../../src/core/hex.ts';
import type { Database } from '../../../src/store/db/db.ts';
import { type ApiStory, createApiStory, PATH } from '../api-story.ts';

export const BULK = `${PATH}/bulk`;
export const URL_A = 'https://a.example.com/hook';

/** One line of a response. */
export type Outcome = {
  index?: number;
  success: boolean;
  data?: Json & { id: string; address: string };
  statusCode?: number;
  statusMessage?: string;
  errors?: { path: string; message: string }[];
};
export type Json = { [field: string]: unknown };

export type BulkStory = ApiStory & {
  key: string;
  watcherId: number;
  /** A stream of changes that the caller writes. It reads the response only when the caller requests it. */
  open(headers?: Record<string, string>): ClientRequest;
  /** Sends all lines, values as JSON and texts as they are. Returns all answers. */
  send(lines: readonly unknown[], headers?: Record<string, string>): Promise<Outcome[]>;
  /** All records of the watcher, by address. */
  list(): Promise<NonNullable<Outcome['data']>[]>;
  [Symbol.asyncDispose](): Promise<void>;
};

export async function createBulkStory(
  database: Database,
  limits: WatcherLimits = {},
  options: { adminToken?: string } = {},
): Promise<BulkStory> {
  const story = createApiStory(database, undefined, undefined, { limits, ...options });
  const { key, watcherId } = await story.issue('acme');
  const address = await story.api.listen({ host: '127.0.0.1', port: 0 });
  const open = (headers: Record<string, string> = {}) =>
    request(`${address}${BULK}`, {
      method: 'POST',
      agent: false,
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/x-ndjson', ...headers },
    });
  return {
    ...story,
    key,
    watcherId,
    open,
    async send(lines, headers) {
      const stream = open(headers);
      const responded = once(stream, 'response');
      stream.end(lines.map((line) => `${typeof line === 'string' ? line : JSON.stringify(line)}\n`).join(''));
      const [response] = await responded;
      return Array.fromAsync(readOutcomes(response));
    },
    async list() {
      const { json } = await story.ask('GET', PATH, { key });
      const { data } = json as { data: NonNullable<Outcome['data']>[] };
      return data.sort((a, b) => (a.address < b.address ? -1 : 1));
    },
    [Symbol.asyncDispose]: () => story.api.close(),
  };
}

/** The answers as they arrive, one for each line. */
export async function* readOutcomes(response: IncomingMessage): AsyncGenerator<Outcome> {
  for await (const line of createInterface({ input: response })) yield JSON.parse(line);
}

/** The address of this number, and a record that watches it. */
export const addressOf = (number: number): Address => `0x${number.toString(16).padStart(40, '0')}`;
export const recordOf = (number: number, fields: Json = {}): Json => ({
  address: addressOf(number),
  webhook_url: URL_A,
  ...fields,
});
export const recordsOf = (count: number, start = 0): Json[] =>
  Array.from({ length: count }, (_, index) => recordOf(start + index));
