/**
 * How many PostgreSQL connections a process opens, by its roles, and whether through the pooler or directly.
 */
import type { Config } from '../config/schema.ts';
import { SINGLE_CONNECTIONS } from '../domain/capacity.ts';
import type { Connections } from '../store/db/db.ts';
import { REPLICA_PROBE_CONNECTIONS } from '../store/db/postgres.ts';
import type { Role } from './roles.ts';

type Settings = Pick<Config['database'], 'url' | 'sessionUrl' | 'replicaUrl' | 'connections'>;

/** Without the role `api`: for metrics. */
const API_MAX_WITHOUT_ROLE = 2;
/** Without the roles that follow or read prices: the clock. */
const FOLLOWER_MAX_WITHOUT_ROLE = 1;

/**
 * Where a process with these roles connects, and its limits. A process without the role `api` doesn't use the pooler, so it works
 * without one.
 */
export function connectionsOf(
  { url, sessionUrl, connections }: Omit<Settings, 'replicaUrl'>,
  roles: ReadonlySet<Role>,
): { url: string; sessionUrl: string; connections: Connections } {
  const { follower, api, delivery } = connections;
  const servesApi = roles.has('api');
  const follows = roles.has('follower') || roles.has('prices');
  return {
    url: servesApi ? url : sessionUrl || url,
    sessionUrl: servesApi ? sessionUrl : '',
    connections: {
      follower: follows ? follower : Math.min(follower, FOLLOWER_MAX_WITHOUT_ROLE),
      api: servesApi ? api : Math.min(api, API_MAX_WITHOUT_ROLE),
      delivery,
    },
  };
}

/** The most connections that a process with these roles opens: to PostgreSQL itself, to the pooler and to the replica if there are any. */
export function countConnections(
  settings: Settings,
  roles: ReadonlySet<Role>,
): { direct: number; pooler?: number; replica?: number } {
  const { sessionUrl, connections } = connectionsOf(settings, roles);
  const { follower, api, delivery } = connections;
  const direct = follower + (roles.has('delivery') ? delivery : 0) + SINGLE_CONNECTIONS;
  return {
    ...(sessionUrl === '' ? { direct: direct + api } : { direct, pooler: api }),
    ...(settings.replicaUrl !== '' &&
      roles.has('api') && { replica: settings.connections.replica + REPLICA_PROBE_CONNECTIONS }),
  };
}
