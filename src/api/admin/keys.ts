/**
 * Operator routes that list, issue, rotate and revoke API keys, as `chainbell keys` does.
 */
import { type Static, Type } from 'typebox';
import { Fault } from '../../core/fault.ts';
import { OVERLAP_HOURS_DEFAULT, OVERLAP_HOURS_MAX } from '../../domain/overlap.ts';
import { SLICES_MAX } from '../../domain/shard.ts';
import type { Db } from '../../store/db/db.ts';
import { findKey, type KeyCursor, listNewestKeys, type StoredKey } from '../../store/watchers/api-keys.ts';
import type { Api, ApiOptions, IssuedKey } from '../context.ts';
import { strict } from '../http/body-names.ts';
import { invalid } from '../http/errors.ts';
import { cursorParameter, nextLink } from '../http/paging.ts';
import { querySchema, readKeyed } from '../http/parameters.ts';
import { answerOf, textOrNull } from '../notifications/log-json.ts';
import { LIMIT, LIMIT_DEFAULT } from '../notifications/log-query.ts';
import { watcherParameter } from './scope.ts';

const PATH = '/api/admin/keys';
const MINUTE_MS = 60_000;
const OVERLAP_MINUTES_DEFAULT = OVERLAP_HOURS_DEFAULT * 60;
const OVERLAP_MINUTES_MAX = OVERLAP_HOURS_MAX * 60;
/** Of the calls that issue a key. */
const SHOWN_ONCE =
  'The key is in this response only. After a 503, a key may exist that no response shows: list the keys, revoke it, and issue another one.';
/** After a failure of the database. Its commit may have succeeded, with only the answer lost. */
const LOST_ADVICE =
  'A key may have been issued that no response shows. To find it, list the keys (GET /api/admin/keys, newest first). Revoke such a key, and issue another one';
/** More than any name of a watcher or id of a key has. */
const NAME_CHARACTERS_MAX = 200;

const parameters = { ...watcherParameter, limit: LIMIT, cursor: cursorParameter(parseCursor) };
const KeyJson = Type.Object(
  {
    id: Type.String(),
    watcher_id: Type.Integer(),
    watcher: Type.String({ description: 'Name of the watcher.' }),
    created_at: Type.String(),
    expires_at: Type.Union([Type.String(), Type.Null()], {
      description: 'When a rotated key is or was refused, because its overlap with the new key ends.',
    }),
    revoked_at: textOrNull,
  },
  { title: 'ApiKey' },
);
const Issued = Type.Object(
  {
    id: Type.String(),
    key: Type.String({ description: 'The key itself. It is in this response only.' }),
    watcher_id: Type.Integer(),
    watcher: Type.String(),
    created_at: Type.String(),
    expires_at: Type.Null(),
    revoked_at: Type.Null(),
  },
  { title: 'IssuedApiKey' },
);
const Revoked = Type.Object({
  id: Type.String(),
  watcher: Type.String(),
  revoked_at: Type.String(),
  watcher_has_valid_key: Type.Boolean(),
  remark: Type.Union([Type.String(), Type.Null()], {
    description: 'What it means that the watcher has no valid key left, and what to do.',
  }),
});
const Creation = Type.Object(
  {
    watcher: Type.String({
      maxLength: NAME_CHARACTERS_MAX,
      description: 'Name of the owner. A new name creates a watcher.',
    }),
    slices: Type.Optional(
      Type.Integer({ minimum: 1, maximum: SLICES_MAX, description: 'Slices of a new watcher.' }),
    ),
  },
  strict,
);
const Rotation = Type.Object(
  {
    overlap_minutes: Type.Optional(
      Type.Number({
        minimum: 0,
        maximum: OVERLAP_MINUTES_MAX,
        description: `How long the old key stays valid. By default ${OVERLAP_MINUTES_DEFAULT}.`,
      }),
    ),
  },
  strict,
);
const Params = Type.Object({ id: Type.String() });

const AT = '2026-01-31T12:00:00.000Z';
const key = {
  ...{ id: 'k7Qm2x9RtLpA', watcher_id: 7, watcher: 'acme' },
  ...{ created_at: AT, expires_at: null, revoked_at: null },
};
const issued = { ...key, key: 'cb_live_k7Qm2x9RtLpA_…' };
const operations = {
  list: {
    summary: 'List the API keys of all watchers, newest first',
    description: 'Without their text, which is shown only when a key is issued.',
    example: { success: true, data: [key] },
    answerHeaders: { link: '`rel="next"` leads to the next page.' },
  },
  create: {
    summary: 'Issue an API key',
    description: `The owner is a new or an existing watcher. ${SHOWN_ONCE}`,
    bodyExample: { watcher: 'acme' },
    example: { success: true, data: issued },
    errors: { 409: 'The watcher is being deleted, or has another number of slices' },
  },
  rotate: {
    summary: 'Rotate an API key',
    description: `Issues a new key for the same watcher. Webhooks carry it at once, and the old key stays valid for the overlap. ${SHOWN_ONCE}`,
    bodyExample: { overlap_minutes: 60 },
    example: { success: true, data: issued },
    errors: { 404: 'Key not found', 409: 'The key was already rotated or revoked' },
  },
  revoke: {
    summary: 'Revoke an API key',
    description: 'It is refused from the next request on. No webhook carries it after 5 seconds.',
    example: {
      success: true,
      data: { id: key.id, watcher: 'acme', revoked_at: AT, watcher_has_valid_key: true, remark: null },
    },
    errors: { 404: 'Key not found' },
  },
};

export function addAdminKeyRoutes(api: Api, options: ApiOptions): void {
  addList(api, options);
  addCreate(api, options);
  addRotate(api, options);
  addRevoke(api, options);
}

function addList(api: Api, { database }: ApiOptions): void {
  api.get(
    PATH,
    {
      schema: { querystring: querySchema(parameters), response: answerOf(Type.Array(KeyJson)) },
      config: { operation: operations.list },
    },
    async ({ query }, reply) => {
      const { watcher: watcherId, limit = LIMIT_DEFAULT, cursor: after } = readKeyed(query, parameters);
      const keys = await listNewestKeys(database, { watcherId, after, limit });
      const last = keys.at(-1);
      if (last !== undefined && keys.length === limit)
        reply.header('link', nextLink(PATH, { ...query, cursor: formatCursor(last) }));
      return success(keys.map(keyJson));
    },
  );
}

function addCreate(api: Api, { operator }: ApiOptions): void {
  async function issue(watcher: string, slices: number | undefined): Promise<IssuedKey> {
    try {
      return await orLost(operator.issueKey(watcher, slices));
    } catch (error) {
      if (error instanceof Fault && error.code === 'invalid') throw invalid('/watcher', error.message);
      throw error;
    }
  }

  api.post(
    PATH,
    { schema: { body: Creation, response: answerOf(Issued) }, config: { operation: operations.create } },
    async ({ body: { watcher, slices } }, reply) => {
      reply.header('cache-control', 'no-store');
      return success(issuedJson(await issue(watcher, slices)));
    },
  );
}

function addRotate(api: Api, { database, operator }: ApiOptions): void {
  api.post(
    `${PATH}/:id/rotate`,
    {
      preValidation: async (request) => {
        // No body means the default overlap.
        request.body ??= {};
      },
      schema: { params: Params, body: Rotation, response: answerOf(Issued) },
      config: { operation: operations.rotate },
    },
    async ({ params: { id }, body: { overlap_minutes: minutes = OVERLAP_MINUTES_DEFAULT } }, reply) => {
      reply.header('cache-control', 'no-store');
      await getKey(database, id);
      return success(issuedJson(await orLost(operator.rotateKey(id, minutes * MINUTE_MS))));
    },
  );
}

function addRevoke(api: Api, { database, operator }: ApiOptions): void {
  api.delete(
    `${PATH}/:id`,
    { schema: { params: Params, response: answerOf(Revoked) }, config: { operation: operations.revoke } },
    async ({ params: { id } }) => {
      await getKey(database, id);
      const { watcherName, revokedAt, hasKey, remark = null } = await operator.revokeKey(id);
      return success({
        ...{ id, watcher: watcherName, revoked_at: revokedAt.toISOString() },
        ...{ watcher_has_valid_key: hasKey, remark },
      });
    },
  );
}

/** The issued key. A failure of the database says what to do if the key is stored nevertheless. */
async function orLost(issuing: Promise<IssuedKey>): Promise<IssuedKey> {
  try {
    return await issuing;
  } catch (error) {
    if (!(error instanceof Fault) || error.code !== 'unavailable') throw error;
    const problems = [{ path: '', message: LOST_ADVICE }];
    throw new Fault('unavailable', error.message, { cause: error, problems });
  }
}

/** Reads nothing, because the key is lost if this response can't be made. */
function issuedJson({ watcherId, watcherName, keyId, key, createdAt }: IssuedKey): Static<typeof Issued> {
  return {
    ...{ id: keyId, key, watcher_id: watcherId, watcher: watcherName },
    ...{ created_at: createdAt.toISOString(), expires_at: null, revoked_at: null },
  };
}

/** @throws Fault `not_found` */
async function getKey(db: Db, id: string): Promise<StoredKey> {
  const found = /^\w{1,64}$/.test(id) ? await findKey(db, id) : undefined;
  if (found === undefined) throw new Fault('not_found', operations.revoke.errors[404]);
  return found;
}

function keyJson({ revokedAt, expiresAt, ...one }: StoredKey): Static<typeof KeyJson> {
  const { id, watcherId, watcherName, createdAt } = one;
  // A key that only expires was not revoked.
  const isRevoked = revokedAt?.getTime() !== expiresAt?.getTime();
  return {
    ...{ id, watcher_id: watcherId, watcher: watcherName, created_at: createdAt.toISOString() },
    expires_at: expiresAt?.toISOString() ?? null,
    revoked_at: isRevoked ? (revokedAt?.toISOString() ?? null) : null,
  };
}

const formatCursor = ({ createdAt, id }: KeyCursor) => `${createdAt.getTime()}-${id}`;

function parseCursor(text: string): KeyCursor | undefined {
  const [, createdMs, id] = /^(\d{1,13})-(\w{1,64})$/.exec(text) ?? [];
  return createdMs === undefined || id === undefined
    ? undefined
    : { createdAt: new Date(Number(createdMs)), id };
}

const success = <T>(data: T) => ({ success: true as const, data });
