/**
 * Settings that open webhooks beyond the defaults: additional certificate authorities, and receivers that are refused by default.
 */
import { readFile } from 'node:fs/promises';
import type { Config } from '../config/schema.ts';
import { Fault } from '../core/fault.ts';
import { whyUnreadable } from '../core/file-fault.ts';
import type { Log } from '../core/log.ts';
import type { Warning } from './chain-warnings.ts';

/** The file `webhooks.caFile`. @throws Fault `invalid` */
export async function readCaFile({ webhooks: { caFile } }: Config): Promise<string | undefined> {
  if (caFile === null) return undefined;
  try {
    return await readFile(caFile, 'utf8');
  } catch (error) {
    throw new Fault('invalid', `webhooks.caFile cannot be read: ${whyUnreadable(error)}`, { cause: error });
  }
}

/** Shown by `chainbell config check`. */
export function openingWarnings({ webhooks: { allowHttp, allowCidrs } }: Config): Warning[] {
  const advice = 'Use this only for development and private networks.';
  return [
    ...(allowHttp
      ? [
          {
            path: 'webhooks.allowHttp',
            message: `is true, so webhooks and their API keys may travel without TLS. ${advice}`,
          },
        ]
      : []),
    ...(allowCidrs.length > 0
      ? [
          {
            path: 'webhooks.allowCidrs',
            message: `allows ${allowCidrs.join(', ')}, so watchers may reach private addresses. ${advice}`,
          },
        ]
      : []),
  ];
}

/** Warns about settings that are unsafe for a service on the open internet. */
export function warnOfOpenings({ webhooks }: Config, log: Log): void {
  const { allowHttp, allowCidrs } = webhooks;
  if (!allowHttp && allowCidrs.length === 0) return;
  const meaning =
    'webhooks may use plain HTTP or reach private addresses; use this only for development and private networks';
  log.warn({ allowHttp, allowCidrs, meaning }, 'webhooks.guard_opened');
}
