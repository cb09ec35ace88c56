/**
 * What the configuration opens for webhooks: further certificate authorities, and receivers that are refused by default.
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

/** Logs what a service on the open internet should keep closed. */
export function warnOfOpenings({ webhooks }: Config, log: Log): void {
  const { allowHttp, allowCidrs } = webhooks;
  if (!allowHttp && allowCidrs.length === 0) return;
  const meaning =
    'webhooks may reach what they should not on the open internet: for development and private networks only';
  log.warn({ allowHttp, allowCidrs, meaning }, 'webhooks.guard_opened');
}
