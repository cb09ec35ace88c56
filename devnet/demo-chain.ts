/**
 * The demo's chain: that of the previous start if everything it left still fits together, otherwise a fresh one.
 */
import { Fault, messageOf } from '../src/core/fault.ts';
import { findTip } from '../src/store/blocks/blocks.ts';
import { openDatabase } from '../src/store/db/open.ts';
import { type Anvil, startAnvil } from './anvil.ts';
import { clearDemoFolder, type DemoFolder, type DemoNote, findDemoNote } from './demo-folder.ts';
import { retryOnConflict } from './free-port.ts';
import { beginningOf, listPast, playPast } from './history.ts';
import { endOrphans } from './orphans.ts';
import { createScene, findScene, type Scene } from './scene.ts';
import { findBlock, quantity } from './wallet.ts';

export type DemoChain = {
  anvil: Anvil;
  scene: Scene;
  /** The timestamp of its genesis block. */
  genesisTime: number;
  /** The note of the start that this one continues. Undefined for a fresh start. */
  continued: DemoNote | undefined;
  /** "continuing at block 70", or the reason for a fresh start. */
  story: string;
};

type DemoChainOptions = {
  /** Another port is used if this one is taken. */
  preferredPort: number;
  chainId: number;
};

/** The balances of a fresh chain. Only these accounts have coins. */
export const genesis = { accounts: 16, coinsEach: 10_000 } as const;

/** How far the service may be behind the chain to continue. Beyond that, a fresh start is ready sooner. */
const BLOCKS_BEHIND_MAX = 500;

/**
 * Starts anvil with the demo's contracts. Until mining starts (mining.ts), only transactions make blocks.
 * @throws Fault `conflict` if a running demo uses the folder, and those of startAnvil
 */
export async function openDemoChain(
  folder: DemoFolder,
  options: DemoChainOptions & { fresh: boolean },
): Promise<DemoChain> {
  // First, because it throws if the folder is in use, before anything is removed.
  await endOrphans({ folder: folder.chainFolder, program: 'anvil' }, { shared: false });
  return continueOrStart(folder, options);
}

async function continueOrStart(
  folder: DemoFolder,
  options: DemoChainOptions & { fresh: boolean },
): Promise<DemoChain> {
  const note = findDemoNote(folder);
  if (options.fresh) return startFresh(folder, options, 'starting fresh, as asked');
  if (note === undefined)
    return startFresh(folder, options, 'starting fresh: there is no earlier demo to continue');
  const found = await continueChain(folder, options, note).catch((error: unknown) => {
    // If a port or the folder is in use, or anvil is missing, the data of the previous start stays.
    if (error instanceof Fault && error.code !== 'conflict' && error.code !== 'not_found')
      return error.message;
    throw error;
  });
  return typeof found === 'string' ? startFresh(folder, options, `starting fresh: ${found}`) : found;
}

async function startFresh(folder: DemoFolder, options: DemoChainOptions, story: string): Promise<DemoChain> {
  clearDemoFolder(folder);
  const now = new Date();
  const genesisTime = secondsOf(beginningOf(now));
  const anvil = await startDemoAnvil(folder, options, genesisTime);
  try {
    const scene = await createScene(anvil);
    await playPast(anvil, scene, listPast(now));
    await setTimeToNow(anvil);
    return { anvil, scene, genesisTime, continued: undefined, story };
  } catch (error) {
    await anvil.stop();
    throw error;
  }
}

/** The chain of the previous start, or the reason why it can't be continued. */
async function continueChain(
  folder: DemoFolder,
  options: DemoChainOptions,
  note: DemoNote,
): Promise<DemoChain | string> {
  const { genesisTime } = note;
  const anvil = await startDemoAnvil(folder, options, genesisTime);
  try {
    await setTimeToNow(anvil);
    const scene = await findScene(anvil);
    const misfit = scene === undefined ? 'the contracts are gone' : await findMisfit(anvil, folder);
    if (scene !== undefined && misfit === undefined) {
      const head = await findBlock(anvil, 'latest');
      return { anvil, scene, genesisTime, continued: note, story: `continuing at block ${head?.number}` };
    }
    await anvil.stop();
    return misfit ?? 'the contracts are gone';
  } catch (error) {
    await anvil.stop();
    throw error;
  }
}

/**
 * anvil 1.7.1 makes a genesis block at each start and also keeps those in the state file, so they must be equal. Otherwise any of
 * them may be block 0 from the next start on. The time of the chain is then that of the genesis block.
 */
async function startDemoAnvil(
  folder: DemoFolder,
  options: DemoChainOptions,
  genesisTime: number,
): Promise<Anvil> {
  const { preferredPort, chainId } = options;
  const { accounts, coinsEach } = genesis;
  const accountArguments = ['--accounts', `${accounts}`, '--balance', `${coinsEach}`];
  const extraArguments = [...accountArguments, '--timestamp', `${genesisTime}`];
  const start = (port: number) =>
    startAnvil({ port, chainId, stateFile: folder.chainStateFile, extraArguments });
  return retryOnConflict(start, { preferred: preferredPort, otherwise: 0 });
}

const secondsOf = (date: Date) => Math.floor(date.getTime() / 1000);

async function setTimeToNow(anvil: Anvil): Promise<void> {
  await anvil.rpc('evm_setTime', [secondsOf(new Date())]);
}

/** The reason why the service can't continue on this chain. Undefined if it can. */
async function findMisfit(anvil: Anvil, folder: DemoFolder): Promise<string | undefined> {
  const tip = await readTip(folder);
  if (tip === undefined) return 'the database has no blocks';
  if (typeof tip === 'string') return `the database cannot be read (${tip})`;
  if ((await findBlock(anvil, tip.number))?.hash !== tip.hash) {
    return `the newest block of the database (${tip.number}) is not on the chain`;
  }
  const head = await findBlock(anvil, 'latest');
  if (head === undefined || head.number - tip.number > BLOCKS_BEHIND_MAX) {
    return `the database is more than ${BLOCKS_BEHIND_MAX} blocks behind the chain`;
  }
  for (let number = tip.number + 1; number <= head.number; number++) {
    if (!(await isTraceable(anvil, number))) return `block ${number} can be traced no more`;
  }
  return undefined;
}

async function readTip(folder: DemoFolder): Promise<Awaited<ReturnType<typeof findTip>> | string> {
  try {
    const database = await openDatabase({ url: '', dataDir: folder.serviceFolder });
    try {
      return await findTip(database);
    } finally {
      await database.close();
    }
  } catch (error) {
    if (error instanceof Fault && error.code === 'conflict') throw error;
    return messageOf(error);
  }
}

/** A restarted anvil traces only its newest blocks, and the service finds internal transfers in traces. */
async function isTraceable(anvil: Anvil, number: number): Promise<boolean> {
  const traces = await anvil.rpc('debug_traceBlockByNumber', [quantity(number), { tracer: 'callTracer' }]);
  return Array.isArray(traces) && traces.every((trace) => 'result' in trace);
}
