/**
 * Settings that open webhooks beyond the defaults: additional certificate authorities, and receivers that are refused by default.
 */
import { readFile } from 'node:fs/promises';
import type { Config } from '../config/schema.ts';
import { Fault } from '../core/fault.ts';
import { whyUnreadable } from '../core/file-fault.ts';
import type { Log } from '../core/log.ts';
import { certificatesProblem } from '../delivery/guard.ts';
import { networkOf, parseCidr } from '../domain/public-address.ts';
import type { Warning } from './chain-warnings.ts';

/** The file `webhooks.caFile`. @throws Fault `invalid` with one problem, if it can't be read or holds no certificates */
export async function readCaFile({ webhooks: { caFile } }: Config): Promise<string | undefined> {
  if (caFile === null) return undefined;
  const refuse = (reason: string) => {
    const path = 'webhooks.caFile';
    const message = `cannot use ${caFile}: ${reason}. Name a PEM file with certificate authorities, or remove this key`;
    return new Fault('invalid', `${path}: ${message}`, { problems: [{ path, message }] });
  };
  const text = await readFile(caFile, 'utf8').catch((error: unknown) => {
    throw refuse(whyUnreadable(error));
  });
  const problem = certificatesProblem(text);
  if (problem !== undefined) throw refuse(problem);
  return text;
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

/** Networks that are valid but hardly meant. Shown by `chainbell config check` and logged at each start. */
export function networkWarnings({ webhooks }: Pick<Config, 'webhooks'>): Warning[] {
  return (['allowCidrs', 'denyCidrs'] as const).flatMap((list) =>
    webhooks[list].flatMap((text, index) => {
      const path = `webhooks.${list}[${index}]`;
      const [address, bits] = parseCidr(text);
      const network = networkOf([address, bits]);
      if (network !== `${address.toString()}/${bits}`) {
        const one = `${address.toString()}/${address.kind() === 'ipv4' ? 32 : 128}`;
        const message = `${text} is the whole network ${network}. Write ${network}, or ${one} for only this address.`;
        return [{ path, message }];
      }
      if (bits > 0 || list === 'allowCidrs') return [];
      const family = address.kind() === 'ipv4' ? 'IPv4' : 'IPv6';
      const message = `${text} denies every ${family} address, so no webhook is sent to one. Name only your own networks.`;
      return [{ path, message }];
    }),
  );
}

/** Warns about settings that are unsafe for a service on the open internet. */
export function warnOfOpenings({ webhooks }: Config, log: Log): void {
  const { allowHttp, allowCidrs } = webhooks;
  if (!allowHttp && allowCidrs.length === 0) return;
  const meaning =
    'webhooks may use plain HTTP or reach private addresses; use this only for development and private networks';
  log.warn({ allowHttp, allowCidrs, meaning }, 'webhooks.guard_opened');
}
