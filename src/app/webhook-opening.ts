/**
 * Settings that open webhooks beyond the defaults: additional certificate authorities, and receivers that are refused by default.
 */
import { readFile } from 'node:fs/promises';
import type { Config } from '../config/schema.ts';
import { Fault, messageOf } from '../core/fault.ts';
import type { Log } from '../core/log.ts';

/** The file `webhooks.caFile`. @throws Fault `invalid` */
export async function readCaFile({ webhooks: { caFile } }: Config): Promise<string | undefined> {
  if (caFile === null) return undefined;
  try {
    return await readFile(caFile, 'utf8');
  } catch (error) {
    throw new Fault('invalid', `webhooks.caFile cannot be read: ${messageOf(error)}`, { cause: error });
  }
}

/** Warns about settings that are unsafe for a service on the open internet. */
export function warnOfOpenings({ webhooks }: Config, log: Log): void {
  const { allowHttp, allowCidrs } = webhooks;
  if (!allowHttp && allowCidrs.length === 0) return;
  const meaning =
    'webhooks may use plain HTTP or reach private addresses; use this only for development and private networks';
  log.warn({ allowHttp, allowCidrs, meaning }, 'webhooks.guard_opened');
}
