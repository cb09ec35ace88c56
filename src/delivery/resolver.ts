/**
 * Host names to addresses, for webhooks.
 */
import { Resolver as DnsClient, lookup } from 'node:dns/promises';
import { setTimeout as delay } from 'node:timers/promises';
import type { WebhookPolicy } from '../domain/webhook-url.ts';

/** An address that a name stands for. */
export type HostAddress = { address: string; family: 4 | 6 };

/** All addresses of a host name, in the order in which to try them; rejects when there are none. */
export type Resolver = (hostname: string) => Promise<readonly HostAddress[]>;

/** Time for one question to one server, doubled at the second and last try. */
const QUESTION_MS = 1000;
const QUESTION_COUNT_MAX = 2;
/** How long the answer for one family is kept waiting for the other; some name servers drop questions for AAAA. */
const LATE_MS_MAX = 300;

/**
 * The resolver for a policy.
 *
 * `dns.lookup` runs on the four threads that this process also reads files with, and holds one for as long as a name
 * server is silent: a few webhooks under a dead name server would stall every other one. So names are asked of the
 * machine's DNS servers directly, which takes a socket and no thread. What is lost is the hosts file and the search
 * list, which are for private networks; a deployment that allows private ranges knows its receivers, and gets
 * `dns.lookup` with everything that the machine is configured for.
 */
export function createResolver(policy: WebhookPolicy): Resolver {
  return policy.allowCidrs.length > 0 ? lookUpLocally : createDnsResolver();
}

/** Asks DNS servers, those of the machine unless `servers` (`ip:port`) are given, for A and AAAA at once. */
export function createDnsResolver(servers?: readonly string[]): Resolver {
  const client = new DnsClient({ timeout: QUESTION_MS, tries: QUESTION_COUNT_MAX });
  if (servers !== undefined) client.setServers(servers);
  return async (hostname) => {
    const found: HostAddress[] = [];
    const ask = async (family: 4 | 6): Promise<void> => {
      const addresses = await (family === 4 ? client.resolve4(hostname) : client.resolve6(hostname));
      found.push(...addresses.map((address) => ({ address, family })));
    };
    const asked = [ask(4), ask(6)];
    const oneAndLate = Promise.any(asked).then(() => delay(LATE_MS_MAX, undefined, { ref: false }));
    await Promise.race([Promise.allSettled(asked), oneAndLate.catch(() => undefined)]);
    // Addresses of one family only are ordinary; without any, the reason is the older family's.
    if (found.length === 0) await asked[0];
    return found.toSorted((one, other) => other.family - one.family);
  };
}

async function lookUpLocally(hostname: string): Promise<readonly HostAddress[]> {
  const found = await lookup(hostname, { all: true, order: 'verbatim' });
  return found.map(({ address, family }) => ({ address, family: family === 6 ? 6 : 4 }));
}
