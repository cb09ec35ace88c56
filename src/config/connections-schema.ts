/**
 * How many connections to PostgreSQL each part of a process may take.
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
      description: 'Webhooks; one of them only records outcomes.',
    }),
  },
  {
    additionalProperties: false,
    default: {},
    description:
      'Connections of a process to PostgreSQL at most, beside the one that holds its locks. No part waits for another one.',
  },
);
