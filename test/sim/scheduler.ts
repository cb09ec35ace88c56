/**
 * Who acts next. Whatever an actor waits for (the database, a node, a receiver, its own next step) is a turn; turns are
 * taken one at a time, so that the order in which they are taken is the whole story.
 */
import { setImmediate as afterMicrotasks } from 'node:timers/promises';

/** A process of the story: a follower or a worker from its start to its end. */
export type Actor = { readonly name: string; isDead: boolean };

export type Turn = {
  readonly actor: Actor;
  /** step: a loop would begin its next step. call: a database or a node is asked. webhook: a receiver is to answer. */
  readonly kind: 'step' | 'call' | 'webhook';
  take(): Promise<void>;
};

export type Scheduler = {
  /** The turns that may be taken, oldest first. */
  waiting(): readonly Turn[];
  /** Waits to be taken, and then for the work. Whatever a dead actor waits for never comes. */
  turn<T>(actor: Actor, kind: Turn['kind'], work: () => Promise<T>): Promise<T>;
  /** Takes a turn that is still waiting, and lets everybody go on until all wait again. */
  take(turn: Turn): Promise<void>;
  /** The actor hears and does nothing more. */
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
      // Nobody awaits anything but turns and the story's clock: after this all of them have come to their next wait.
      await afterMicrotasks();
    },
    bury(actor) {
      actor.isDead = true;
      waiting = waiting.filter((turn) => turn.actor !== actor);
    },
  };
}
