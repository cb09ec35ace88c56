/**
 * The role `api`: serves the HTTP API. A process without the role doesn't load its code.
 */
import type { AttemptBell, InFlight, OpsSources } from '../api/context.ts';
import type { ConsoleFiles } from '../api/http/console-files.ts';
import type { ContractReader } from '../chain/contracts/contracts.ts';
import type { Log } from '../core/log.ts';
import { createSender, type SenderOptions } from '../delivery/send.ts';
import { createMessageView } from '../delivery/shown-message.ts';
import { createTestSender } from '../delivery/test-webhook.ts';
import type { Replica } from '../store/db/replica.ts';
import { describeChain } from './chain-description.ts';
import { openSupply } from './configured-supply.ts';
import type { Foundation } from './foundation.ts';
import { listenFault } from './listen.ts';
import { createOperatorSources } from './operator.ts';
import { createPriceBook } from './price-feeds.ts';
import { valuedPairs } from './valued-pairs.ts';
import { openLimits } from './watcher-limits.ts';

/** Listens when this resolves, at the returned URL. @throws Fault as startService does. */
export async function startApi(
  { config, log, metrics, clock, steadyClock, database: all, shares, keyRing, loops, atStart }: Foundation,
  {
    sender,
    contracts,
    ops,
    inFlight,
    attemptBell,
    replica,
  }: {
    sender: SenderOptions;
    contracts: ContractReader;
    ops: OpsSources;
    /** Undefined if this process delivers nothing. */
    inFlight: InFlight | undefined;
    attemptBell: AttemptBell;
    /** Undefined if none is configured. */
    replica: Replica | undefined;
  },
  parts: AsyncDisposableStack,
): Promise<string> {
  const [{ createApi }, { readConsole }] = await Promise.all([
    import('../api/server.ts'),
    import('../api/http/console-files.ts'),
  ]);
  const database = shares.api;
  // A separate sender, so that delivery never waits for a connection that a test webhook holds.
  const { send, close } = createSender(sender);
  parts.defer(close);
  const nativeSymbol = config.chain.native.symbol;
  const { signal } = loops;
  // The first count may take longer than requests may on Citus.
  const counting = { database: all.for('operator'), clock: steadyClock, log };
  const limits = await atStart('database', () => openLimits(config, counting));
  const api = createApi({
    ...{ database, clock, log, metrics, keyRing, nativeSymbol, limits, ops },
    webhookPolicy: sender.policy,
    chain: describeChain(config),
    confirmations: config.chain.confirmations,
    pairs: valuedPairs(config),
    sendTest: createTestSender({ database, clock, log, keyRing, nativeSymbol, send }),
    showMessage: createMessageView({ database, clock, nativeSymbol }),
    inFlight,
    attemptBell,
    reads: replica,
    adminToken: config.http.adminToken ?? undefined,
    operator: createOperatorSources(config, { database, clock, keyRing }),
    console: config.http.console ? openConsole(log, readConsole) : undefined,
    prices: createPriceBook(config),
    supply: openSupply(config, { database, nodes: contracts, clock, log, signal }),
  });
  parts.defer(() => api.close());
  try {
    const { host, port } = config.http;
    return await api.listen({ host, port });
  } catch (error) {
    throw listenFault(error, { section: 'http', ...config.http });
  }
}

/** The files of the console. Without them the API is served all the same, and /console says how to build it. */
function openConsole(log: Log, read: () => ConsoleFiles): ConsoleFiles {
  const files = read();
  if (files.size === 0) log.warn({ command: 'npm run console' }, 'service.no_console');
  return files;
}
