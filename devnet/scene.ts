/**
 * The scene of the demo: its accounts and contracts.
 */
import { Fault } from '../src/core/fault.ts';
import type { Address } from '../src/core/hex.ts';
import { encodeCall, encodeCreation } from './contracts.ts';
import { createdAt, MARKET_CREATIONS, type Market, MULTICALL3, planMarket } from './market.ts';
import { type Creation, joinMarket, marketCreations, openMarket } from './market-scene.ts';
import {
  executeAll,
  isContract,
  listAccounts,
  type RpcEndpoint,
  readChainTime,
  type Transaction,
} from './wallet.ts';

export type Scene = {
  /** They send to each other. The demo watches the first two. */
  traders: readonly [Address, Address, Address, Address];
  /** Has coins and tokens, and takes no part in the traffic. It is for the reader's experiments. */
  visitor: Address;
  /** Deployed the contracts, and sends transactions for the reader. */
  deployer: Address;
  /** They trade, stake, vote, farm and bridge on the market. */
  members: readonly [Address, ...Address[]];
  contracts: SceneContracts;
  market: Market;
};

type SceneContracts = {
  /** ERC-20, 6 decimals. */
  token: Address;
  /** ERC-20 with a fee of 1 % on each transfer, 18 decimals. */
  feeToken: Address;
  /** ERC-721. The first trader owns number 1. */
  collectible: Address;
  splitter: Address;
};

/** Symbols and decimals of the scene's tokens. */
export const tokenFormats = {
  token: { symbol: 'DUSD', decimals: 6 },
  feeToken: { symbol: 'FEE', decimals: 18 },
} as const;

const MINTED_WHOLE_TOKENS = 1_000_000n;
/** The router, by far the largest contract, needs almost as much. */
const GAS_OF_CREATION = 5_000_000;
const GAS_OF_MINT = 200_000;

/**
 * Creates the contracts and the initial balances in a few blocks. The deployer must not have sent a transaction before.
 * @throws Fault `inconsistent` if it has, or if there are fewer than eight accounts, and `invalid` if a transaction fails
 */
export async function createScene(node: RpcEndpoint): Promise<Scene> {
  const { feeCollector, ...scene } = await planScene(node);
  const { deployer, market, contracts } = scene;
  if ((await node.rpc('eth_getTransactionCount', [deployer, 'latest'])) !== '0x0')
    throw new Fault('inconsistent', 'a chain on which the deployer has sent transactions before');
  const now = await readChainTime(node);
  const creations = new Map([
    ...marketCreations(market, deployer, now),
    ...ownCreations(contracts, feeCollector),
  ]);
  const inTurn = Array.from(creations.keys(), (_address, turn): Transaction => {
    const { contract, values, valueWei = 0n } = getCreation(creations, createdAt(deployer, turn));
    return { from: deployer, valueWei, input: encodeCreation(contract, values), gas: GAS_OF_CREATION };
  });
  await placeMulticall3(node);
  // In two calls, because transactions of different senders are mined in any order.
  await executeAll(node, [...inTurn, ...ownBeginning(scene), ...openMarket(market, scene, now)]);
  await executeAll(node, joinMarket(market, scene, now));
  return scene;
}

/** The scene on a chain where it was created before. Undefined if the contracts are missing. */
export async function findScene(node: RpcEndpoint): Promise<Scene | undefined> {
  const { feeCollector: _, ...scene } = await planScene(node);
  const { tokens, pairs, ...others } = scene.market;
  const addresses = [scene.contracts, tokens, pairs, others].flatMap((group) => Object.values(group));
  for (const address of [MULTICALL3, ...addresses]) {
    if (!(await isContract(node, address))) return undefined;
  }
  return scene;
}

/** The accounts, and the addresses of all contracts, before or after their creation. */
async function planScene(node: RpcEndpoint): Promise<Scene & { feeCollector: Address }> {
  const [first, second, third, fourth, visitor, feeCollector, deployer, member, ...members] =
    await listAccounts(node);
  if (first === undefined || second === undefined || third === undefined || fourth === undefined)
    throw tooFew();
  if (visitor === undefined || feeCollector === undefined || deployer === undefined) throw tooFew();
  if (member === undefined) throw tooFew();
  return {
    traders: [first, second, third, fourth],
    visitor,
    feeCollector,
    deployer,
    members: [member, ...members],
    market: planMarket(deployer),
    contracts: {
      token: createdAt(deployer, MARKET_CREATIONS),
      feeToken: createdAt(deployer, MARKET_CREATIONS + 1),
      collectible: createdAt(deployer, MARKET_CREATIONS + 2),
      splitter: createdAt(deployer, MARKET_CREATIONS + 3),
    },
  };
}

function ownCreations(contracts: SceneContracts, feeCollector: Address): Map<Address, Creation> {
  const { token, feeToken } = tokenFormats;
  return new Map<Address, Creation>([
    [contracts.token, { contract: 'DemoToken', values: ['Demo Dollar', token.symbol, token.decimals] }],
    [contracts.feeToken, { contract: 'FeeToken', values: ['Fee Token', feeToken.symbol, feeCollector] }],
    [contracts.collectible, { contract: 'DemoCollectible', values: ['Demo Collectible', 'DEMO'] }],
    [contracts.splitter, { contract: 'Splitter', values: [] }],
  ]);
}

function getCreation(creations: ReadonlyMap<Address, Creation>, address: Address): Creation {
  const creation = creations.get(address);
  if (creation === undefined) throw new Error(`nothing is to be created at ${address}`);
  return creation;
}

/** Sends tokens to traders and visitor, and the collectible. */
function ownBeginning({ deployer, traders, visitor, contracts }: Scene): Transaction[] {
  const mint = (contract: 'DemoToken' | 'FeeToken' | 'DemoCollectible', to: Address, values: unknown[]) => ({
    from: deployer,
    to,
    input: encodeCall({ contract, method: 'mint', values }),
    gas: GAS_OF_MINT,
  });
  const { token, feeToken, collectible } = contracts;
  const amountOf = (decimals: number) => MINTED_WHOLE_TOKENS * 10n ** BigInt(decimals);
  return [
    ...[...traders, visitor].flatMap((holder) => [
      mint('DemoToken', token, [holder, amountOf(tokenFormats.token.decimals)]),
      mint('FeeToken', feeToken, [holder, amountOf(tokenFormats.feeToken.decimals)]),
    ]),
    mint('DemoCollectible', collectible, [traders[0]]),
  ];
}

/** Sets the code of Multicall3 at its well-known address, which no creation on this chain could reach. */
async function placeMulticall3(node: RpcEndpoint): Promise<void> {
  // An eth_call of a creation runs the constructor and returns the code.
  const code = await node.rpc('eth_call', [{ data: encodeCreation('Multicall3') }, 'latest']);
  await node.rpc('anvil_setCode', [MULTICALL3, code]);
}

function tooFew(): Fault {
  return new Fault('inconsistent', 'a development node with fewer than eight accounts');
}
