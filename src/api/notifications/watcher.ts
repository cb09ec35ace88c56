/**
 * The watcher that an API key belongs to.
 */
import { Type } from 'typebox';
import { findWatcher } from '../../store/watchers/watchers.ts';
import type { Api, ApiOptions } from '../context.ts';
import { createWatcherGate, keyOf, unauthorized } from '../http/auth.ts';
import { answerOf, textOrNull } from './log-json.ts';

const WatcherJson = Type.Object(
  {
    id: Type.Integer(),
    name: Type.String(),
    state: Type.Enum(['active', 'suspended', 'deleting']),
    slices: Type.Integer({ description: 'Slices among which its new watched addresses are spread.' }),
    created_at: Type.String(),
    key: Type.Union(
      [Type.Object({ id: Type.String(), created_at: Type.String(), ends_at: textOrNull }), Type.Null()],
      {
        description:
          'The API key of the request. `ends_at` is set while it overlaps with a newer key. Null for the operator.',
      },
    ),
  },
  { title: 'OwnWatcher' },
);

const operation = {
  summary: 'Show the watcher of the API key',
  example: {
    success: true,
    data: {
      ...{ id: 7, name: 'acme', state: 'active', slices: 1, created_at: '2026-01-31T12:00:00.000Z' },
      key: { id: 'k7Qm2x9RtLpA', created_at: '2026-01-31T12:00:00.000Z', ends_at: null },
    },
  },
};

export function addWatcherRoute(api: Api, options: ApiOptions): void {
  const { database, clock } = options;
  const { onRequest, watcherOf } = createWatcherGate(options);

  api.get(
    '/api/notifications/watcher',
    { onRequest, schema: { response: answerOf(WatcherJson) }, config: { operation } },
    async (request) => {
      const watcher = await findWatcher(database, watcherOf(request), clock.now());
      // It was deleted after the key was checked.
      if (watcher === undefined) throw unauthorized();
      const { id, name, slices, createdAt, suspendedAt, deletingAt } = watcher;
      const key = keyOf(request);
      return {
        success: true as const,
        data: {
          ...{ id, name, slices, created_at: createdAt.toISOString() },
          state: deletingAt !== undefined ? 'deleting' : suspendedAt !== undefined ? 'suspended' : 'active',
          key:
            key === undefined
              ? null
              : {
                  ...{ id: key.id, created_at: key.createdAt.toISOString() },
                  ends_at: key.endsAt?.toISOString() ?? null,
                },
        },
      } as const;
    },
  );
}
