/**
 * The capacity model: what a load costs each part of Chainbell, which step of growth carries it, and where the next limit is. It
 * multiplies the load with measured unit costs (unit-costs.ts), and compares it with measured rates and with the cores there are.
 */
import { unitCosts } from './unit-costs.ts';

export type Load = {
  /** Transactions of the chain per second, each with one transfer. */
  tps: number;
  addresses: number;
  /** Webhooks per second, each accepted at its first attempt. */
  deliveries: number;
  blockSeconds: number;
  /** Receivers' origins, each with one delivery queue. */
  receivers: number;
  /** API reads per second that the cache answers. */
  reads: number;
  /** How long notifications and attempts are kept. */
  days: number;
  /** Cores of one database server. */
  databaseCores: number;
};

type PartCost = {
  part: 'follower' | 'delivery' | 'api' | 'database';
  /** Rows per second. */
  writes: number;
  /** Blocks from the node, rows of due notifications, or requests per second. */
  reads: number;
  /** Bytes of WAL per second. Only the database writes any. */
  walBytes: number;
  sockets: number;
  cores: number;
  memoryMiB: number;
};

type Share = {
  /** What is used. */
  of: string;
  /** Part of its measured rate, or of its cores; 1 = all of it. */
  used: number;
};

type Step = {
  step: string;
  carries: boolean;
  /** Whether the unit costs contain everything. Those of Citus itself are left out. */
  isMeasured: boolean;
  /** The processes or servers that it takes. */
  takes: string;
  shares: Share[];
};

export type Capacity = {
  load: Load;
  parts: PartCost[];
  stored: { addressBytes: number; growthBytesPerDay: number; historyBytes: number; walBytesPerDay: number };
  steps: Step[];
  /** The first step that carries the load. */
  carriedBy: string | undefined;
  /** The part of that step that is used up first, and at which multiple of the load. */
  nextLimit: { of: string; at: number } | undefined;
  measured: { processor: string; cores: number; memoryGiB: number; load: number };
};

/** A step carries a load that uses at most this part of each rate and core. The rest is for peaks, backlogs and vacuum. */
const USED_MAX = 0.5;
const DAY_SECONDS = 86_400;
/** Defaults of `database.connections`. */
const connectionsOf = { follower: 2, delivery: 6, api: 6 } as const;
/** Further connections of each process: a session, which holds advisory locks and listens, and the one of the heartbeat. */
export const SINGLE_CONNECTIONS = 2;

export function computeCapacity(load: Load): Capacity {
  const { addresses, deliveries, days } = load;
  const cores = coresOf(load);
  const { steps, senders, apis } = stepsOf(load, cores);
  const carrying = steps.find(({ carries }) => carries);
  const [first] = (carrying?.shares ?? []).toSorted((one, other) => other.used - one.used);
  const [embedded, alone] = steps;
  const isAlone = carrying !== undefined && (carrying === embedded || carrying === alone);
  const processes: Processes = isAlone
    ? { follower: 1, delivery: 0, api: 0 }
    : { follower: 2, delivery: senders, api: apis };
  const growthBytesPerDay =
    deliveries * DAY_SECONDS * (unitCosts.notificationBytes.value + unitCosts.attemptBytes.value);
  return {
    load,
    parts: partsOf(load, cores, { processes, isEmbedded: carrying !== undefined && carrying === embedded }),
    stored: {
      addressBytes: addresses * unitCosts.addressBytes.value,
      growthBytesPerDay,
      historyBytes: days * growthBytesPerDay,
      walBytesPerDay: deliveries * DAY_SECONDS * unitCosts.wal.value,
    },
    steps,
    carriedBy: carrying?.step,
    nextLimit:
      first === undefined || first.used === 0 ? undefined : { of: first.of, at: USED_MAX / first.used },
    measured: unitCosts.machine,
  };
}

type Cores = Record<PartCost['part'], number>;
/** Processes by role. A process with all roles counts as a follower. */
type Processes = Record<Exclude<PartCost['part'], 'database'>, number>;

function coresOf({ tps, deliveries, blockSeconds, reads }: Load): Cores {
  const cost = unitCosts;
  const blocks = 1 / blockSeconds;
  const eachDelivery = cost.commitDatabase.value + cost.settleDatabase.value + cost.statisticsProcessor.value;
  const microseconds = {
    follower: tps * cost.transactionService.value + blocks * cost.blockService.value,
    delivery: deliveries * cost.deliveryService.value,
    api: reads * cost.cachedReadService.value,
    database:
      tps * cost.transactionDatabase.value + blocks * cost.blockDatabase.value + deliveries * eachDelivery,
  };
  const { follower, delivery, api, database } = microseconds;
  return { follower: follower / 1e6, delivery: delivery / 1e6, api: api / 1e6, database: database / 1e6 };
}

/** The steps from the smallest on, and how many processes for delivery and API they take. */
function stepsOf({ deliveries, blockSeconds, reads, databaseCores }: Load, cores: Cores) {
  const cost = unitCosts;
  const share = (of: string, rate: number, limit: number): Share => ({ of, used: rate / limit });
  // One follower leads. It proves in threads, but the rest of its work is on one.
  const follower = share('leading follower', cores.follower, 1);
  const sender = share('delivery process', deliveries, cost.processDeliveries.value);
  const api = share('API process', reads, cost.processReads.value);
  const commits = share('commits of one follower', deliveries, cost.commits.value);
  const database = share('database server', cores.database, databaseCores);
  const embedded = share(
    'embedded database',
    Math.max(1 / blockSeconds, deliveries),
    cost.embeddedBlocks.value,
  );
  const together = { of: 'process', used: follower.used + sender.used + api.used };
  const counted = ({ used }: Share) => Math.max(1, Math.ceil(used / USED_MAX));
  const [senders, apis, workers] = [counted(sender), counted(api), counted(database)];

  const step = (name: string, takes: string, shares: Share[], isMeasured = true): Step => ({
    ...{ step: name, takes, shares, isMeasured, carries: shares.every(({ used }) => used <= USED_MAX) },
  });
  const roles = `2 follower (one leads), ${senders} delivery, ${apis} api`;
  const steps = [
    step('one process with the embedded database', '1 process', [embedded, together]),
    step('one process on PostgreSQL', '1 process, 1 server', [together, commits, database]),
    step('roles on one PostgreSQL', `${roles}, 1 server`, [follower, commits, database]),
    step(
      'roles on Citus',
      `${roles}, 1 coordinator, ${workers} worker${workers === 1 ? '' : 's'}`,
      [follower, commits],
      false,
    ),
  ];
  return { steps, senders, apis };
}

function partsOf(
  { addresses, deliveries, blockSeconds, receivers, reads }: Load,
  cores: Cores,
  { processes, isEmbedded }: { processes: Processes; isEmbedded: boolean },
): PartCost[] {
  const cost = unitCosts;
  const blocks = 1 / blockSeconds;
  const connectionsTo = (part: keyof Processes) =>
    isEmbedded
      ? 0
      : connectionsOf[part] * Math.max(1, processes[part]) + SINGLE_CONNECTIONS * processes[part];
  const memoryOf = (part: keyof Processes) => processes[part] * cost.processMemory.value;
  const connections = connectionsTo('follower') + connectionsTo('delivery') + connectionsTo('api');
  return [
    {
      part: 'follower',
      ...{ writes: blocks + 2 * deliveries, reads: blocks, walBytes: 0, cores: cores.follower },
      sockets: connectionsTo('follower'),
      memoryMiB: memoryOf('follower') + (addresses * cost.filterBytes.value) / 2 ** 20,
    },
    {
      part: 'delivery',
      ...{ writes: 2 * deliveries, reads: deliveries, walBytes: 0, cores: cores.delivery },
      sockets: connectionsTo('delivery') + receivers * cost.receiverSockets.value,
      memoryMiB: memoryOf('delivery') + (receivers * cost.queueMemory.value) / 1024,
    },
    {
      part: 'api',
      ...{ writes: 0, reads, walBytes: 0, cores: cores.api },
      sockets: connectionsTo('api'),
      memoryMiB: memoryOf('api'),
    },
    {
      part: 'database',
      ...{ writes: blocks + 4 * deliveries, reads: deliveries, cores: cores.database, sockets: connections },
      walBytes: deliveries * cost.wal.value,
      memoryMiB: 0,
    },
  ];
}
