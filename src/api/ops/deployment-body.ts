/**
 * Schemas of the parts of /status that describe the whole deployment, and of the operator's details.
 */
import { type Static, type TSchema, Type } from 'typebox';

const orNull = <T extends TSchema>(schema: T) => Type.Union([schema, Type.Null()]);
const Time = Type.String({ description: 'ISO 8601 UTC.' });
const Problem = Type.Object({ message: Type.String(), since: Time });

const Process = Type.Object({
  id: Type.String({ description: 'The process logs it as `service.started`.' }),
  roles: Type.Array(Type.String()),
  version: Type.String(),
  state: Type.Enum(['running', 'stopped', 'failed', 'lost'], {
    description:
      '`stopped`: it ended as asked. `failed`: its start failed (`error` has the reason), or a bug ended it (`service.failed` in its log). `lost`: it has sent no heartbeat for 10 s.',
  }),
  error: orNull(Type.String({ description: 'Why its start failed.' })),
  started_at: Time,
  seen_at: Type.String({ description: "Time of its last heartbeat by the database's clock." }),
  follower: orNull(
    Type.Object(
      {
        leads: Type.Boolean({
          description: 'Whether it leads. Of several followers one leads and the others stand by.',
        }),
        state: Type.Enum(['ok', 'degraded', 'holding']),
        head: orNull(Type.Integer()),
        problem: orNull(Problem),
      },
      { description: 'State at its last heartbeat. Null without the role follower.' },
    ),
  ),
});

export const deploymentFields = {
  processes: orNull(
    Type.Array(Process, {
      description:
        'The processes of the deployment: first the one that answers, then by last heartbeat, newest first. Null while it cannot read them.',
    }),
  ),
  missing: orNull(
    Type.Array(
      Type.Object({
        role: Type.Enum(['follower', 'delivery', 'prices']),
        message: Type.String(),
        since: Time,
      }),
      {
        description:
          'Roles that no process has had for 10 s. `follower` is always required, `delivery` while webhooks wait, and `prices` if price feeds are configured. `prices` is also listed while the next round of any feed is overdue by 35 s (not with the embedded database). Null while it is unknown.',
      },
    ),
  ),
  receivers: orNull(
    Type.Object(
      {
        failing: Type.Integer({
          description: 'Receivers with a failed notification that waits for its retry.',
        }),
        watchers: Type.Integer({ description: 'Watchers that have such receivers.' }),
        since: orNull(Type.String({ description: 'When the longest-failing receiver began to fail.' })),
      },
      {
        description:
          'Receivers of all watchers. Failing receivers do not change `state`. Null while they cannot be read.',
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
          'Watchers whose webhooks are late: they have more due than their share of the attempts allows, or nothing is delivered (see `missing`, `failing_work` and `problem`).',
      },
    ),
  ),
};

const AT = '2026-01-31T12:00:00.000Z';
const Example = Type.Object(deploymentFields);
export const deploymentExample: Static<typeof Example> = {
  processes: [
    {
      ...{ id: '1b9d6bcd', roles: ['api'], version: '0.1.0', state: 'running', error: null },
      ...{ started_at: AT, seen_at: AT, follower: null },
    },
    {
      ...{ id: '9b1deb4d', roles: ['delivery', 'follower', 'prices'], version: '0.1.0', state: 'running' },
      ...{ error: null, started_at: AT, seen_at: AT },
      follower: { leads: true, state: 'ok', head: 24_000_000, problem: null },
    },
  ],
  missing: [],
  receivers: { failing: 2, watchers: 1, since: AT },
  late: { watchers: 0, seconds: 0 },
};

/** Details for operators only. */
export const DeploymentDetails = Type.Object(
  {
    processes: Type.Array(Type.Object({ ...Process.properties, host: Type.String(), pid: Type.Integer() }), {
      description: 'As in /status, with host and process id.',
    }),
    late_watchers: orNull(
      Type.Array(
        Type.Object({
          watcher_id: Type.Integer(),
          watcher: Type.String(),
          oldest_due_at: Type.String({ description: 'When its most overdue webhook was due.' }),
          seconds: Type.Number({ description: 'Seconds since then.' }),
        }),
        {
          description:
            'Watchers with a webhook that has been due for more than a minute, because they have more due than their share of the attempts allows, or because nothing is delivered. The most overdue first, up to 100. Null while it cannot be read.',
        },
      ),
    ),
  },
  { title: 'DeploymentDetails' },
);
export type DeploymentDetails = Static<typeof DeploymentDetails>;
