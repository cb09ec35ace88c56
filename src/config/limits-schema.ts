/**
 * The section `limits`: how much each watcher may use.
 */
import Type from 'typebox';

const LIMIT_MAX = 1_000_000_000;

const limitOf = (description: string) =>
  Type.Union([Type.Literal('off'), Type.Integer({ minimum: 1, maximum: LIMIT_MAX })], {
    title: `"off" (no limit) or a whole number from 1 to ${LIMIT_MAX}`,
    default: 'off',
    description,
  });

export const LimitsSection = Type.Object(
  {
    records: limitOf('Watched addresses of a watcher.'),
    recordsPerAddressAndUrl: limitOf('Watched addresses of a watcher with the same address and URL.'),
    receiverOrigins: limitOf('Different scheme, host and port of the webhook URLs of a watcher.'),
    pendingNotifications: limitOf(
      'Notifications of a watcher that wait for an attempt. Exceeding it raises an alarm and drops nothing.',
    ),
  },
  {
    additionalProperties: false,
    default: {},
    description: 'Limits of each watcher. Set the same values on all processes.',
  },
);
