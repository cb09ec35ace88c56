/**
 * Routes for watched addresses: spec 4.5 and 2.6, and docs/reference/http-api.md where the specification is silent.
 */
import { randomUUID } from 'node:crypto';
import { Readable } from 'node:stream';
import { type Static, Type } from 'typebox';
import { Fault, type Problem } from '../../core/fault.ts';
import { parseAddress } from '../../core/hex.ts';
import { parseWebhookUrl, type WebhookPolicy, webhookOrigin } from '../../domain/webhook-url.ts';
import type { Database } from '../../store/db/db.ts';
import { doOnce } from '../../store/watchers/idempotency.ts';
import {
  deleteWatchedAddress,
  findWatchedAddress,
  insertWatchedAddress,
  listRecordsOfAddress,
  listWatchedAddresses,
  type NewWatchedAddress,
  updateWatchedAddress,
  type WatchedAddress,
  type WatchedAddressPatch,
} from '../../store/watchers/watched.ts';
import type { Api, ApiOptions } from '../context.ts';
import { createShardGate, type WatcherGate } from '../http/auth.ts';
import { invalidRequest } from '../http/errors.ts';
import { onceOf } from '../http/idempotency-key.ts';
import { IdempotencyHeaders, idempotencyErrors } from '../http/operation.ts';
import { cursorParameter, limitParameter, nextLink } from '../http/paging.ts';
import { parameter, querySchema, readKeyed } from '../http/parameters.ts';
import { createLateAlignment } from './late-alignment.ts';
import { LIMIT_REACHED } from './limits.ts';

export const PATH = '/api/notifications/watched-addresses';
/** Watched addresses in one database read while a list is streamed. */
const PAGE_RECORDS = 1_000;
const LIMIT_MAX = 10_000;

export const Patch = Type.Object({
  address: Type.Optional(Type.String()),
  watch_coin: Type.Optional(Type.Boolean()),
  watch_token: Type.Optional(Type.Boolean()),
  webhook_url: Type.Optional(Type.String()),
});
export const Create = Type.Object({
  ...Patch.properties,
  address: Type.String(),
  webhook_url: Type.String(),
});
export const Record = Type.Object(
  {
    id: Type.String(),
    watcher_id: Type.Integer(),
    address: Type.String(),
    watch_coin: Type.Boolean(),
    watch_token: Type.Boolean(),
    webhook_url: Type.String(),
    created_at: Type.String(),
    updated_at: Type.String(),
  },
  { title: 'WatchedAddress' },
);
const One = Type.Object({ success: Type.Literal(true), data: Record });
const All = Type.Object({ success: Type.Literal(true), data: Type.Array(Record) });
const Done = Type.Object({ success: Type.Literal(true) });
const Params = Type.Object({ id: Type.String() });
const listParameters = {
  limit: limitParameter(
    LIMIT_MAX,
    Type.String({
      description: `The maximum number of watched addresses, up to ${LIMIT_MAX}. All unless given.`,
    }),
  ),
  cursor: cursorParameter(
    parseCursor,
    Type.String({ description: 'From the `link` header of the previous page.' }),
  ),
  address: parameter(
    '40 hexadecimal characters',
    parseAddress,
    Type.String({ description: 'Only the watched addresses with this address.' }),
  ),
};

const body = {
  address: '0x00000000000000000000000000000000000000a1',
  webhook_url: 'https://hooks.example.com/deposits',
};
const record = {
  id: '5f0c2b8e-6d0a-4f6e-9a55-0b8f6a1f9c00',
  watcher_id: 7,
  ...{ address: body.address, watch_coin: true, watch_token: true, webhook_url: body.webhook_url },
  created_at: '2026-01-31T12:00:00.000Z',
  updated_at: '2026-01-31T12:00:00.000Z',
};
const one = { success: true, data: record };
const operations = {
  create: {
    summary: 'Watch an address',
    description:
      'The address is watched from the next block that is stored after this response. By default, a transfer is sent as soon as its block is stored, and nothing more is sent if a reorg orphans it later. To credit deposits safely, set `confirmations` above the depth of reorgs, or set `removed` and handle the removal notices: `PUT …/<id>/settings`.',
    headers: IdempotencyHeaders,
    bodyExample: body,
    example: one,
    errors: { ...idempotencyErrors, 409: `${LIMIT_REACHED} ${idempotencyErrors[409]}` },
  },
  list: {
    summary: 'List watched addresses, oldest first',
    answer: All,
    answerHeaders: { link: 'With a limit: `rel="next"` leads to the next page.' },
    example: { success: true, data: [record] },
  },
  get: { summary: 'Show a watched address', example: one },
  update: {
    summary: 'Update a watched address',
    description: 'Omitted fields stay as they are. Waiting notifications go to the new URL.',
    bodyExample: { watch_token: false },
    example: { success: true, data: { ...record, watch_token: false } },
    errors: { 409: LIMIT_REACHED },
  },
  remove: {
    summary: 'Delete a watched address',
    description: 'Its waiting notifications are cancelled.',
    example: { success: true },
  },
};

type ChangeOptions = ApiOptions & { align: ReturnType<typeof createLateAlignment> };

export function addWatchedAddressRoutes(api: Api, options: ApiOptions): void {
  const gate = createShardGate(options);
  addCreate(api, options, gate);
  addList(api, options, gate);
  addGet(api, options, gate);
  const changing = { ...options, align: createLateAlignment(options) };
  addUpdate(api, changing, gate);
  addRemove(api, changing, gate);
}

function addCreate(api: Api, options: ApiOptions, { onRequest, watcherOf }: WatcherGate): void {
  const { database, clock, webhookPolicy, limits } = options;
  const schema = { body: Create, response: { 200: One } };
  api.post(PATH, { onRequest, schema, config: { operation: operations.create } }, async (request) => {
    const record = parseNew(request.body, webhookPolicy);
    const watcherId = watcherOf(request);
    const at = { origin: webhookOrigin(record.webhookUrl), now: clock.now, limits };
    return doOnce(database, onceOf(request, watcherId, clock.now()), async (tx) =>
      success(await insertWatchedAddress(tx, watcherId, record, at)),
    );
  });
}

function addList(api: Api, { database }: ApiOptions, { onRequest, watcherOf }: WatcherGate): void {
  const schema = { querystring: querySchema(listParameters) };
  const config = {
    operation: operations.list,
    // Without an address, the list is streamed a page at a time.
    recordsUnlessLimited: (query: object) => ('address' in query ? LIMIT_MAX : PAGE_RECORDS),
  };
  api.get(PATH, { onRequest, schema, config }, async (request, reply) => {
    const watcherId = watcherOf(request);
    const { limit: given, cursor: after, address } = readKeyed(request.query, listParameters);
    reply.type('application/json; charset=utf-8');
    if (given === undefined && address === undefined)
      // The body of a HEAD is read to its end and dropped, even when its client has gone.
      return Readable.from(request.method === 'HEAD' ? [] : streamList(database, watcherId, after));
    const limit = given ?? LIMIT_MAX;
    const records = await (address === undefined
      ? listWatchedAddresses(database, watcherId, { after, limit })
      : listRecordsOfAddress(database, watcherId, address, { after, limit }));
    const last = records.at(-1);
    if (last !== undefined && records.length === limit)
      reply.header('link', nextLink(PATH, { limit, address, cursor: formatCursor(last) }));
    return { success: true, data: records.map(toJson) };
  });
}

function addGet(api: Api, { database }: ApiOptions, { onRequest, watcherOf }: WatcherGate): void {
  const schema = { params: Params, response: { 200: One } };
  api.get(`${PATH}/:id`, { onRequest, schema, config: { operation: operations.get } }, async (request) => {
    const watcherId = watcherOf(request);
    return success(found(await findWatchedAddress(database, watcherId, parseId(request.params.id))));
  });
}

function addUpdate(api: Api, options: ChangeOptions, { onRequest, watcherOf }: WatcherGate): void {
  const { database, clock, webhookPolicy, limits, align } = options;
  const schema = { params: Params, body: Patch, response: { 200: One } };
  api.patch(
    `${PATH}/:id`,
    { onRequest, schema, config: { operation: operations.update } },
    async (request) => {
      const watcherId = watcherOf(request);
      const patch = parsePatch(request.body, webhookPolicy);
      const origin = patch.webhookUrl === undefined ? undefined : webhookOrigin(patch.webhookUrl);
      const id = parseId(request.params.id);
      const at = { origin, now: clock.now, limits, align };
      return success(found(await updateWatchedAddress(database, watcherId, id, patch, at)));
    },
  );
}

function addRemove(api: Api, options: ChangeOptions, { onRequest, watcherOf }: WatcherGate): void {
  const { database, clock, limits, align } = options;
  const schema = { params: Params, response: { 200: Done } };
  api.delete(
    `${PATH}/:id`,
    { onRequest, schema, config: { operation: operations.remove } },
    async (request) => {
      const id = parseId(request.params.id);
      const at = { now: clock.now, limits, align };
      const isDeleted = await deleteWatchedAddress(database, watcherOf(request), id, at);
      if (!isDeleted) throw notFound();
      return { success: true as const };
    },
  );
}

/** A new watched address with a new id. @throws Fault `invalid` that lists every problem */
export function parseNew(body: Static<typeof Create>, policy: WebhookPolicy): NewWatchedAddress {
  const { watch_coin: watchCoin = true, watch_token: watchToken = true } = body;
  const { address, webhookUrl } = parseFields(body, policy);
  if (address === undefined || webhookUrl === undefined) throw new Error('the schema requires both');
  return { id: randomUUID(), address, watchCoin, watchToken, webhookUrl };
}

/** The changes in a body. @throws Fault `invalid` that lists every problem */
export function parsePatch(body: Static<typeof Patch>, policy: WebhookPolicy): WatchedAddressPatch {
  const { watch_coin: watchCoin, watch_token: watchToken } = body;
  return {
    ...parseFields(body, policy),
    ...(watchCoin !== undefined && { watchCoin }),
    ...(watchToken !== undefined && { watchToken }),
  };
}

/** The normalized address and the checked URL of a body. @throws Fault `invalid` that lists every problem */
export function parseFields(
  body: Static<typeof Patch>,
  policy: WebhookPolicy,
): Pick<WatchedAddressPatch, 'address' | 'webhookUrl'> {
  const problems: Problem[] = [];
  const check = <T>(path: string, parse: () => T): T | undefined => {
    try {
      return parse();
    } catch (error) {
      if (!(error instanceof Fault)) throw error;
      problems.push({ path, message: error.message });
      return undefined;
    }
  };
  const { address: addressText, webhook_url: urlText } = body;
  const address = addressText === undefined ? undefined : check('/address', () => parseAddress(addressText));
  const webhookUrl =
    urlText === undefined ? undefined : check('/webhook_url', () => checkedUrl(urlText, policy));
  if (problems.length > 0) throw invalidRequest(problems);
  return { ...(address !== undefined && { address }), ...(webhookUrl !== undefined && { webhookUrl }) };
}

/** The URL exactly as written, because every body returns it to the watcher. */
function checkedUrl(text: string, policy: WebhookPolicy): string {
  parseWebhookUrl(text, policy);
  return text;
}

/** The whole list, page by page, so memory stays bounded. */
async function* streamList(
  database: Database,
  watcherId: number,
  start: Cursor | undefined,
): AsyncGenerator<string> {
  let after = start;
  let separator = '';
  yield '{"success":true,"data":[';
  for (;;) {
    const page = await listWatchedAddresses(database, watcherId, { after, limit: PAGE_RECORDS });
    if (page.length > 0) yield separator + page.map((record) => JSON.stringify(toJson(record))).join(',');
    if (page.length < PAGE_RECORDS) break;
    after = page.at(-1);
    separator = ',';
  }
  yield ']}';
}

type Cursor = Pick<WatchedAddress, 'createdAt' | 'id'>;

function formatCursor({ createdAt, id }: Cursor): string {
  return Buffer.from(`${createdAt.getTime()} ${id}`).toString('base64url');
}

function parseCursor(text: string): Cursor | undefined {
  const match = /^(\d{1,13}) ([0-9a-f-]{36})$/.exec(Buffer.from(text, 'base64url').toString());
  return match?.[2] === undefined || !UUID.test(match[2])
    ? undefined
    : { createdAt: new Date(Number(match[1])), id: match[2] };
}

export const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

/** @throws Fault `not_found` for a text that is not a UUID */
export function parseId(text: string): string {
  if (!UUID.test(text)) throw notFound();
  return text.toLowerCase();
}

/** Another watcher's watched address gets the same answer, so that ids reveal nothing. */
const notFound = () => new Fault('not_found', 'Watched address not found');

/** The value. @throws Fault `not_found` for undefined, and a value that is a Fault */
export function found<T>(value: T | Fault | undefined): T {
  if (value instanceof Fault) throw value;
  if (value === undefined) throw notFound();
  return value;
}

const success = (record: WatchedAddress) => ({ success: true as const, data: toJson(record) });

export function toJson(record: WatchedAddress): Static<typeof Record> {
  return {
    id: record.id,
    watcher_id: record.watcherId,
    address: record.address,
    watch_coin: record.watchCoin,
    watch_token: record.watchToken,
    webhook_url: record.webhookUrl,
    created_at: record.createdAt.toISOString(),
    updated_at: record.updatedAt.toISOString(),
  };
}
