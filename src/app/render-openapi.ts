/**
 * Renders the OpenAPI document without a running service, because only the routes determine it.
 */
import { documentText } from '../api/openapi.ts';
import { createApi } from '../api/server.ts';
import { systemClock } from '../core/clock.ts';
import { Fault } from '../core/fault.ts';
import { silentLog } from '../core/log.ts';
import { createMetrics } from '../core/metrics.ts';
import { deriveKeyRing } from '../domain/key-ring.ts';

/** The document as JSON, the same for every configuration. */
export async function renderOpenApi(): Promise<string> {
  const nothing = () => Promise.reject(new Fault('unavailable', 'there is nothing behind this API'));
  const unknown = { asset: '', origin: { kind: 'none' } } as const;
  const api = createApi({
    database: {
      ...{ kind: 'embedded', query: nothing, each: nothing, transaction: nothing },
      ...{ script: nothing, session: nothing, close: nothing },
    },
    clock: systemClock(),
    log: silentLog(),
    metrics: createMetrics(''),
    keyRing: deriveKeyRing(Buffer.alloc(32)),
    webhookPolicy: { allowHttp: false, allowCidrs: [], ports: [] },
    chain: {
      ...{ id: 0, name: '', tokens: [] },
      has: { points: false, prices: false, pairs: false, supply: false, admin: false },
    },
    nativeSymbol: '',
    sendTest: nothing,
    showMessage: nothing,
    inFlight: undefined,
    attemptBell: { listen: () => () => {} },
    confirmations: 0,
    limits: {},
    pairs: [],
    prices: { native: unknown, reward: unknown, tokens: new Map() },
    supply: undefined,
    ops: { checks: nothing, status: nothing, fullStatus: nothing, details: nothing },
    operator: {
      ...{
        issueKey: nothing,
        rotateKey: nothing,
        revokeKey: nothing,
        explain: nothing,
        countDeliveries: nothing,
      },
      configuration: () => ({}),
    },
    adminToken: undefined,
  });
  try {
    await api.ready();
    return documentText(api);
  } finally {
    await api.close();
  }
}
