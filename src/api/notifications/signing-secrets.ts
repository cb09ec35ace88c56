/**
 * Routes that show and rotate the secrets that sign a watcher's webhooks.
 */
import { type Static, Type } from 'typebox';
import { OVERLAP_HOURS_DEFAULT, OVERLAP_HOURS_MAX, overlapMsOf } from '../../domain/overlap.ts';
import { publicKeyText, secretText } from '../../domain/signature.ts';
import {
  listSigningSecrets,
  readSignsV1a,
  rotateSigningSecret,
  type SigningSecret,
  writeSignsV1a,
} from '../../store/watchers/signing-secrets.ts';
import type { Api, ApiOptions } from '../context.ts';
import { createWatcherGate } from '../http/auth.ts';
import { strict } from '../http/body-names.ts';

const PATH = '/api/notifications/signing-secrets';

const Secret = Type.Object({
  number: Type.Integer(),
  secret: Type.String(),
  public_key: Type.String(),
  created_at: Type.String(),
  ends_at: Type.Union([Type.String(), Type.Null()]),
});
const All = Type.Object({ success: Type.Literal(true), data: Type.Array(Secret) });
const Rotation = Type.Object(
  { overlap_hours: Type.Optional(Type.Number({ minimum: 0, maximum: OVERLAP_HOURS_MAX })) },
  strict,
);
const Settings = Type.Object(
  { v1a: Type.Boolean({ description: 'Whether webhooks also carry `v1a` signatures.' }) },
  strict,
);
const SettingsAnswer = Type.Object({ success: Type.Literal(true), data: Settings });

const example = {
  success: true,
  data: [
    {
      number: 1,
      secret: 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw',
      public_key: 'whpk_AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA=',
      created_at: '2026-01-31T12:00:00.000Z',
      ends_at: null,
    },
  ],
};
const operations = {
  list: { summary: 'List the signing secrets in force', example },
  rotate: {
    summary: 'Rotate the signing secret',
    description: `Webhooks are signed with the old secret too for \`overlap_hours\`, by default ${OVERLAP_HOURS_DEFAULT}.`,
    bodyExample: { overlap_hours: 24 },
    example,
    errors: { 409: 'The maximum number of signing secrets is in force.' },
  },
  settings: {
    summary: 'Which signatures webhooks carry',
    example: { success: true, data: { v1a: false } },
  },
  replaceSettings: {
    summary: 'Choose which signatures webhooks carry',
    description:
      'Webhooks always carry `v1` signatures (HMAC-SHA256). With `v1a` they also carry ed25519 signatures, which a receiver verifies with the public key. The change takes effect within 5 s.',
    bodyExample: { v1a: true },
    example: { success: true, data: { v1a: true } },
  },
};

export function addSigningSecretRoutes(api: Api, options: ApiOptions): void {
  const { clock, database } = options;
  const { onRequest, watcherOf } = createWatcherGate(options);

  api.get(
    PATH,
    { onRequest, schema: { response: { 200: All } }, config: { operation: operations.list } },
    async (request, reply) => {
      reply.header('cache-control', 'no-store');
      return success(await listSigningSecrets(options, watcherOf(request), clock.now()));
    },
  );

  api.post(
    `${PATH}/rotate`,
    {
      onRequest,
      preValidation: async (request) => {
        // No body means the default overlap.
        request.body ??= {};
      },
      schema: { body: Rotation, response: { 200: All } },
      config: { operation: operations.rotate },
    },
    async (request, reply) => {
      reply.header('cache-control', 'no-store');
      const { overlap_hours: hours = OVERLAP_HOURS_DEFAULT } = request.body;
      const overlapMs = overlapMsOf(hours);
      return success(await rotateSigningSecret(options, watcherOf(request), { now: clock.now(), overlapMs }));
    },
  );

  api.get(
    `${PATH}/settings`,
    { onRequest, schema: { response: { 200: SettingsAnswer } }, config: { operation: operations.settings } },
    async (request) => ({
      success: true as const,
      data: { v1a: await readSignsV1a(database, watcherOf(request)) },
    }),
  );

  api.put(
    `${PATH}/settings`,
    {
      onRequest,
      schema: { body: Settings, response: { 200: SettingsAnswer } },
      config: { operation: operations.replaceSettings },
    },
    async (request) => {
      await writeSignsV1a(database, watcherOf(request), request.body.v1a);
      return { success: true as const, data: request.body };
    },
  );
}

const success = (secrets: readonly SigningSecret[]) => ({
  success: true as const,
  data: secrets.map(toSecretJson),
});

/** A signing secret as the API and the command line return it. */
export function toSecretJson({ number, keys, createdAt, endsAt }: SigningSecret): Static<typeof Secret> {
  return {
    number,
    secret: secretText(keys),
    public_key: publicKeyText(keys),
    created_at: createdAt.toISOString(),
    ends_at: endsAt?.toISOString() ?? null,
  };
}
