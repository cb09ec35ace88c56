/**
 * The course of a story: the fault, the recovery, two more blocks, and the oracle's verdict as a row.
 */
import type { NodeFault } from './node-proxy.ts';
import type { Verdict } from './oracle.ts';
import { findAll, type Setting, type Stage, setStage } from './stage.ts';

export type Story = Setting & {
  /** The fault in words. */
  name: string;
  /** Runs beside other stories, because it mostly waits for time limits. */
  isSlow?: boolean;
  /** Webhooks fail, or the program is killed, so the same notification may be received again with the same id. */
  mayRepeat?: boolean;
  /** Causes the fault, asserts its visible effects, and ends it. */
  tell(stage: Stage): Promise<void>;
};

export type Row = { fault: string; injected: number } & Verdict & { recoveredMs: number };

type Teller = {
  /** Stories with equal settings run on the same stage, one after the other, until one fails. */
  tell(story: Story): Promise<Row>;
  [Symbol.asyncDispose](): Promise<void>;
};

export function createTeller(): Teller {
  const free = new Map<string, Stage>();
  return {
    async tell(story) {
      const { nodes, isPolled, chain, chainOptions, mayRepeat } = story;
      const key = JSON.stringify([nodes, isPolled, chain, chainOptions, mayRepeat]);
      const stage = free.get(key) ?? (await setStage(story));
      free.delete(key);
      let row: Row | undefined;
      try {
        row = await tellOn(stage, story);
        return row;
      } finally {
        // In the next story, nodes that rest after their faults would be missing.
        const isReusable = row !== undefined && problemsOf(row).length === 0 && nodes === undefined;
        if (isReusable && !free.has(key)) free.set(key, stage);
        else await stage[Symbol.asyncDispose]();
      }
    },
    async [Symbol.asyncDispose]() {
      for (const stage of free.values()) await stage[Symbol.asyncDispose]();
    },
  };
}

/** The problems of a row. Empty when the fault struck and no notification was lost, doubled or made up. */
export function problemsOf(row: Row): string[] {
  const { wrongBlocks, lost, doubled, falseRollbacks, falseNotices } = row;
  const wrong = Object.entries({ wrongBlocks, lost, doubled, falseRollbacks, falseNotices });
  return [
    ...wrong.flatMap(([what, count]) => (count === 0 ? [] : [`${what}: ${count}`])),
    ...(row.injected === 0 ? ['the fault never struck'] : []),
  ];
}

/**
 * Makes the first of several nodes lie until the condition holds. On a loaded machine that node may count as slow and get
 * requests last for minutes. A restart clears that state.
 */
export async function lieUntil(
  stage: Stage,
  fault: NodeFault,
  condition: () => Promise<boolean>,
  describe: string,
): Promise<void> {
  const [node] = stage.nodes;
  for (;;) {
    let isMet = false;
    node.inject(fault);
    await stage.payUntil(async () => {
      isMet = await condition();
      return isMet || (await stage.status()).nodes[0]?.state === 'slow';
    }, describe);
    if (isMet) return;
    node.mend();
    await stage.service.stop();
    await stage.restart();
    await stage.settled();
  }
}

async function tellOn(stage: Stage, story: Story): Promise<Row> {
  const injectedBefore = countInjected(stage);
  await story.tell(stage);
  const startedAt = performance.now();
  await stage.payBlock();
  await stage.payBlock();
  await stage.chain.mine(story.chain?.confirmations ?? 1);
  await stage.settled();
  const recoveredMs = Math.round(performance.now() - startedAt);
  const verdict = await stage.oracle.judge(await findAll(stage), { mayRepeat: story.mayRepeat === true });
  return {
    fault: story.name,
    injected: countInjected(stage) - injectedBefore,
    ...verdict,
    recoveredMs,
  };
}

const countInjected = ({ nodes, happened }: Stage) =>
  nodes.reduce((sum, node) => sum + node.injected(), happened.injected);
