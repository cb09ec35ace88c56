/**
 * The parts of /status that are about the whole deployment, as they are described and made.
 */
import { type Static, type TSchema, Type } from 'typebox';

const orNull = <T extends TSchema>(schema: T) => Type.Union([schema, Type.Null()]);
const Time = Type.String({ description: 'ISO 8601 UTC.' });
const Problem = Type.Object({ message: Type.String(), since: Time });

const Process = Type.Object({
  id: Type.String({ description: 'Also in its log (service.started).' }),
  roles: Type.Array(Type.String()),
  version: Type.String(),
  state: Type.Enum(['running', 'stopped', 'lost'], {
    description: 'stopped: it ended as asked. lost: it has sent no heartbeat for 10 s.',
  }),
  started_at: Time,
  seen_at: Type.String({ description: "Its last heartbeat, by the database's clock." }),
  follower: orNull(
    Type.Object(
      {
        leads: Type.Boolean({ description: 'Of several followers one leads, the others stand by.' }),
        state: Type.Enum(['ok', 'degraded', 'holding']),
        head: orNull(Type.Integer()),
        problem: orNull(Problem),
      },
      { description: 'As of its last heartbeat; null without the role follower.' },
    ),
  ),
});

export const deploymentFields = {
  processes: Type.Array(Process, {
    description: 'The processes of the deployment: the one that answers first, then the one seen last.',
  }),
  missing: Type.Array(
    Type.Object({
      role: Type.Enum(['follower', 'delivery', 'prices']),
      message: Type.String(),
      since: Time,
    }),
    {
      description:
        'Roles that no process has had for 10 s: follower always, delivery while webhooks wait, prices where feeds are configured.',
    },
  ),
  receivers: orNull(
    Type.Object(
      {
        failing: Type.Integer({
          description: 'Receivers with a notification that failed and waits for its retry.',
        }),
        watchers: Type.Integer({ description: 'Watchers that have such receivers.' }),
        since: orNull(Type.String({ description: 'Since when the longest of them fails.' })),
      },
      {
        description:
          'Of all watchers. Failing receivers leave `state` as it is. Null while the database cannot be read.',
      },
    ),
  ),
  late: orNull(
    Type.Object(
      {
        watchers: Type.Integer({
          description: 'Watchers with a webhook that has been due for more than a minute.',
        }),
        seconds: Type.Number({ description: 'How long the most overdue of those webhooks has been due.' }),
      },
      {
        description:
          "Watchers with more due than their share of the attempts allows. Other watchers' webhooks are on time.",
      },
    ),
  ),
};

const AT = '2026-01-31T12:00:00.000Z';
const Example = Type.Object(deploymentFields);
export const deploymentExample: Static<typeof Example> = {
  processes: [
    {
      ...{ id: '1b9d6bcd', roles: ['api'], version: '0.1.0', state: 'running' },
      ...{ started_at: AT, seen_at: AT, follower: null },
    },
    {
      ...{ id: '9b1deb4d', roles: ['delivery', 'follower', 'prices'], version: '0.1.0', state: 'running' },
      ...{ started_at: AT, seen_at: AT },
      follower: { leads: true, state: 'ok', head: 24_000_000, problem: null },
    },
  ],
  missing: [],
  receivers: { failing: 2, watchers: 1, since: AT },
  late: { watchers: 0, seconds: 0 },
};

/** What only operators see. */
export const DeploymentDetails = Type.Object(
  {
    processes: Type.Array(Type.Object({ ...Process.properties, host: Type.String(), pid: Type.Integer() }), {
      description: 'As in /status.',
    }),
    late_watchers: Type.Array(
      Type.Object({
        watcher_id: Type.Integer(),
        watcher: Type.String(),
        oldest_due_at: Type.String({ description: 'When its most overdue webhook was due.' }),
        seconds: Type.Number({ description: 'How long ago that was.' }),
      }),
      {
        description:
          'Watchers with a webhook that has been due for more than a minute, because they have more due than their share of the attempts allows. The latest first, up to 100.',
      },
    ),
  },
  { title: 'DeploymentDetails' },
);
export type DeploymentDetails = Static<typeof DeploymentDetails>;
