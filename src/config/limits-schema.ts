/**
 * What a watcher may have.
 */
import Type from 'typebox';

const limitOf = (description: string) =>
  Type.Union([Type.Literal('off'), Type.Integer({ minimum: 1, maximum: 1_000_000_000 })], {
    title: '"off" or a number',
    default: 'off',
    description,
  });

export const LimitsSection = Type.Object(
  {
    records: limitOf('Watched addresses of a watcher.'),
    recordsPerAddressAndUrl: limitOf('Watched addresses of a watcher with the same address and URL.'),
    receiverOrigins: limitOf('Different scheme, host and port of the webhook URLs of a watcher.'),
    pendingNotifications: limitOf(
      'Notifications of a watcher that wait for an attempt: with more there is an alarm, and nothing is dropped.',
    ),
  },
  {
    additionalProperties: false,
    default: {},
    description: 'Limits of each watcher; the same on all processes. The specification has none.',
  },
);
