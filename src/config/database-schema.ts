/**
 * The section `database`: where PostgreSQL is, and how many connections each part of a process may use.
 */
import Type from 'typebox';
import { DatabaseUrlText } from './scalars.ts';

const closed = { additionalProperties: false, default: {} } as const;

const Connections = Type.Object(
  {
    follower: Type.Integer({
      minimum: 1,
      maximum: 100,
      default: 2,
      description: 'Follower and price feeds.',
    }),
    api: Type.Integer({
      minimum: 1,
      maximum: 500,
      default: 6,
      description:
        'The API and /status. Of three or more, no watcher gets more than remain free, so that it can’t take all of them alone.',
    }),
    replica: Type.Integer({
      minimum: 1,
      maximum: 500,
      default: 6,
      description: 'Reads from database.replicaUrl. One more connection probes it.',
    }),
    delivery: Type.Integer({
      minimum: 2,
      maximum: 500,
      default: 6,
      description:
        'Webhook delivery. Two of these connections only record outcomes; one if there are fewer than four.',
    }),
  },
  {
    ...closed,
    description:
      'Maximum PostgreSQL connections of each part of a process. Two more connections are for its locks and its heartbeat. No part waits for a connection of another part.',
  },
);

export const DatabaseSection = Type.Object(
  {
    url: Type.With(DatabaseUrlText, {
      default: '',
      description:
        'Empty: embedded PostgreSQL in dataDir. With sslmode=verify-full the connection is encrypted and the server verified.',
    }),
    sessionUrl: Type.With(DatabaseUrlText, {
      default: '',
      description:
        'PostgreSQL itself, if url leads to a pooler in transaction mode. Only the API then uses the pooler.',
    }),
    replicaUrl: Type.With(DatabaseUrlText, {
      default: '',
      description:
        'A streaming replica of the primary, for reads of the API and of `chainbell verify`. While it is down or too far behind, the primary serves them.',
    }),
    replicaLagMaxSeconds: Type.Number({
      minimum: 1,
      maximum: 3_600,
      default: 5,
      description: 'How far the replica may be behind before the primary serves the reads.',
    }),
    connections: Connections,
  },
  closed,
);
