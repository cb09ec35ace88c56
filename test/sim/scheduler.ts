/**
 * Chooses the next actor. Each wait of an actor (for the database, a node, a receiver, its own next step) is a turn. Turns
 * run one at a time, so their order determines the whole story.
 */
import { setImmediate as afterMicrotasks } from 'node:timers/promises';

/** A process of the story: a follower or a worker from its start to its end. */
export type Actor = { readonly name: string; isDead: boolean };

export type Turn = {
  readonly actor: Actor;
  /** step: a loop begins its next step. call: an actor queries the database or a node. webhook: a receiver answers. */
  readonly kind: 'step' | 'call' | 'webhook';
  take(): Promise<void>;
};

export type Scheduler = {
  /** The waiting turns, oldest first. */
  waiting(): readonly Turn[];
  /** Waits until the turn is taken, and then for the work. The turn of a dead actor never ends. */
  turn<T>(actor: Actor, kind: Turn['kind'], work: () => Promise<T>): Promise<T>;
  /** Takes a waiting turn, and lets all actors continue until all of them wait again. */
  take(turn: Turn): Promise<void>;
  /** Ends an actor: it gets no further turns and no results. */
  bury(actor: Actor): void;
};

export function createScheduler(): Scheduler {
  let waiting: Turn[] = [];
  return {
    waiting: () => waiting,
    turn<T>(actor: Actor, kind: Turn['kind'], work: () => Promise<T>): Promise<T> {
      const { promise, resolve, reject } = Promise.withResolvers<T>();
      const take = () =>
        work().then(
          (result) => {
            if (!actor.isDead) resolve(result);
          },
          (error: unknown) => {
            if (!actor.isDead) reject(error);
          },
        );
      if (!actor.isDead) waiting.push({ actor, kind, take });
      return promise;
    },
    async take(turn) {
      if (!waiting.includes(turn)) return;
      waiting = waiting.filter((one) => one !== turn);
      await turn.take();
      // Actors await only turns and the story's clock, so now all of them have reached their next wait.
      await afterMicrotasks();
    },
    bury(actor) {
      actor.isDead = true;
      waiting = waiting.filter((turn) => turn.actor !== actor);
    },
  };
}
