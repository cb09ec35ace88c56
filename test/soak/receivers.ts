/**
 * The receivers of the soak, each with a way to misbehave that changes from time to time.
 */
import { contentOf } from '../faults/oracle.ts';
import { type Answer, type Receiver, startReceiver } from '../kit/receiver.ts';
import type { Arrival } from './oracle.ts';

type SoakReceivers = {
  urls: string[];
  ports: number[];
  /** In the order of their arrival, since the last `forget`. */
  arrivals: Arrival[];
  received(): number;
  /** Open connections of all receivers. */
  connections(): number;
  /** Lets one receiver misbehave in another way, or well. Returns how. */
  change(): string;
  /** Lets all of them behave well. */
  mend(): void;
  forget(): void;
};

const RECEIVERS = 6;

/** How a receiver answers. `chance` is a random number for this request. */
const manners: Record<string, (chance: number) => (Answer & { delayMs?: number }) | Answer> = {
  good: (chance) => ({ status: chance < 0.5 ? 200 : 204, delayMs: chance * 25 }),
  flaky: (chance) => (chance < 0.15 ? { status: 503 } : chance < 0.25 ? 'reset' : { status: 204 }),
  slow: (chance) => ({ status: 200, delayMs: 200 + chance * 1_500 }),
  'with long pages': (chance) => ({ status: chance < 0.7 ? 200 : 500, body: 'x'.repeat(100_000) }),
  hanging: (chance) => (chance < 0.05 ? 'hang' : { status: 204 }),
  down: () => 'reset',
};

export async function startReceivers(
  parts: AsyncDisposableStack,
  random: () => number,
): Promise<SoakReceivers> {
  const arrivals: Arrival[] = [];
  const receivers: Receiver[] = [];
  const names: string[] = [];
  let received = 0;
  const start = (index: number) =>
    startReceiver({
      async answer({ json }) {
        received += 1;
        const chosen = manners[names[index] ?? 'good']?.(random()) ?? {};
        const {
          id,
          watched_addresses_id: record,
          hash,
          type,
          sender,
          receiver,
          amount,
          asset,
        } = json as Record<string, string> & { id: number };
        const isTaken = typeof chosen === 'object' && 'status' in chosen && (chosen.status ?? 500) < 300;
        const content = contentOf(record, hash, type, sender, receiver, amount, asset);
        arrivals.push({ id, record: String(record), content, at: performance.now(), isTaken });
        return chosen;
      },
    });
  for (let index = 0; index < RECEIVERS; index += 1) {
    names.push('good');
    receivers.push(parts.use(await start(index)));
  }
  return {
    urls: receivers.map(({ url }) => url),
    ports: receivers.map(({ port }) => port),
    arrivals,
    received: () => received,
    connections: () => receivers.reduce((sum, one) => sum + one.openCount(), 0),
    change() {
      const index = Math.floor(random() * RECEIVERS);
      const all = Object.keys(manners);
      const name = all[Math.floor(random() * all.length)] ?? 'good';
      names[index] = name;
      return `receiver ${index + 1} is ${name}`;
    },
    mend() {
      names.fill('good');
    },
    forget() {
      arrivals.length = 0;
      for (const { requests } of receivers) requests.length = 0;
    },
  };
}
