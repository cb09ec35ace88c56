/**
 * Resolves the host names of webhook URLs.
 */
import { Resolver as DnsClient, lookup } from 'node:dns/promises';
import { setTimeout as delay } from 'node:timers/promises';
import { type Clock, machineSteadyMs } from '../core/clock.ts';
import type { WebhookPolicy } from '../domain/webhook-url.ts';

/** One address of a host name. */
export type HostAddress = { address: string; family: 4 | 6 };

/** All addresses of a host name, in the order in which to try them; rejects when there are none. */
export type Resolver = (hostname: string) => Promise<readonly HostAddress[]>;

/** Time for one query to one server, doubled for the second and last try. */
const QUESTION_MS = 1000;
const QUESTION_COUNT_MAX = 2;
/** A client reads the machine's DNS servers when it is created, so a network that changes needs a new one. Creating it takes 0.3 ms. */
const CLIENT_MS_MAX = 30_000;
/** How long to wait for the second address family after the first one; some name servers drop AAAA queries. */
const LATE_MS_MAX = 300;

/**
 * The resolver for a policy.
 *
 * `dns.lookup` runs on the four threads with which this process also reads files, and holds one while a name server is silent. A
 * few webhooks with a dead name server would stall all others. So this queries the machine's DNS servers directly, which takes a
 * socket and no thread. It ignores the hosts file and the search list, which serve private networks. A deployment that allows
 * private ranges knows its receivers, so it uses `dns.lookup` with the machine's whole configuration.
 */
export function createResolver(policy: WebhookPolicy): Resolver {
  return policy.allowCidrs.length > 0 ? lookUpLocally : createDnsResolver();
}

type DnsOptions = {
  /** The DNS servers (`ip:port`) instead of the machine's; called for each new client. */
  servers?(): readonly string[];
  clock?: Pick<Clock, 'steadyMs'>;
};

/** Queries the DNS servers for A and AAAA at once. Looks every CLIENT_MS_MAX whether they have changed. */
export function createDnsResolver({ servers, clock }: DnsOptions = {}): Resolver {
  const { steadyMs } = clock ?? { steadyMs: machineSteadyMs };
  const open = () => {
    const client = new DnsClient({ timeout: QUESTION_MS, tries: QUESTION_COUNT_MAX });
    if (servers !== undefined) client.setServers(servers());
    return { client, openedMs: steadyMs() };
  };
  let newest = open();
  return async (hostname) => {
    if (steadyMs() - newest.openedMs >= CLIENT_MS_MAX) newest = open();
    // Queries under way keep theirs.
    const { client } = newest;
    const found: HostAddress[] = [];
    const ask = async (family: 4 | 6): Promise<void> => {
      const addresses = await (family === 4 ? client.resolve4(hostname) : client.resolve6(hostname));
      found.push(...addresses.map((address) => ({ address, family })));
    };
    const asked = [ask(4), ask(6)];
    const oneAndLate = Promise.any(asked).then(() => delay(LATE_MS_MAX, undefined, { ref: false }));
    await Promise.race([Promise.allSettled(asked), oneAndLate.catch(() => undefined)]);
    // Addresses of one family suffice. Without any, report the error of IPv4.
    if (found.length === 0) await asked[0];
    return found.toSorted((one, other) => other.family - one.family);
  };
}

async function lookUpLocally(hostname: string): Promise<readonly HostAddress[]> {
  const found = await lookup(hostname, { all: true, order: 'verbatim' });
  return found.map(({ address, family }) => ({ address, family: family === 6 ? 6 : 4 }));
}
