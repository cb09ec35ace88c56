/**
 * The section `database.connections`: how many PostgreSQL connections each part of a process may use.
 */
import Type from 'typebox';

export const Connections = Type.Object(
  {
    follower: Type.Integer({
      minimum: 1,
      maximum: 100,
      default: 2,
      description: 'Follower and price feeds.',
    }),
    api: Type.Integer({ minimum: 1, maximum: 500, default: 6, description: 'The API and /status.' }),
    delivery: Type.Integer({
      minimum: 2,
      maximum: 500,
      default: 6,
      description:
        'Webhook delivery. Two of these connections only record outcomes; one if there are fewer than four.',
    }),
  },
  {
    additionalProperties: false,
    default: {},
    description:
      'Maximum PostgreSQL connections of each part of a process. One more connection holds its locks. No part waits for a connection of another part.',
  },
);
