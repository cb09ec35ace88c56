/**
 * The scene of the demo: who is on the chain, and which contracts are there for them.
 */
import { Fault } from '../src/core/fault.ts';
import type { Address } from '../src/core/hex.ts';
import { type ContractCall, encodeCall } from './contracts.ts';
import {
  deployContract,
  isContract,
  listAccounts,
  type Node,
  sendTransaction,
  waitForReceipt,
} from './wallet.ts';

export type Scene = {
  /** Send to each other. The first two are watched in the demo. */
  traders: readonly [Address, Address, Address, Address];
  /** Has coin and tokens, and is not part of the traffic: for the reader's own experiments. */
  visitor: Address;
  /** Deployed the contracts; sends what the reader asks it to. */
  deployer: Address;
  contracts: SceneContracts;
};

export type SceneContracts = {
  /** ERC-20, 6 decimals. */
  token: Address;
  /** ERC-20 with a fee of 1 % on each transfer, 18 decimals. */
  feeToken: Address;
  /** ERC-721; the first trader got number 1. */
  collectible: Address;
  splitter: Address;
};

/** How amounts of the scene's tokens are shown. */
export const tokenFormats = {
  token: { symbol: 'DUSD', decimals: 6 },
  feeToken: { symbol: 'FEE', decimals: 18 },
} as const;

const MINTED_WHOLE_TOKENS = 1_000_000n;

/** Deploys the contracts and gives every trader tokens. Needs a chain that mines each transaction at once. */
export async function createScene(node: Node): Promise<Scene> {
  const { traders, visitor, deployer, feeCollector } = await castAccounts(node);
  const { token, feeToken } = tokenFormats;
  const deploy = (
    contract: Parameters<typeof deployContract>[1]['contract'],
    ...values: readonly unknown[]
  ) => deployContract(node, { from: deployer, contract, values });
  const contracts: SceneContracts = {
    token: await deploy('DemoToken', 'Demo Dollar', token.symbol, token.decimals),
    feeToken: await deploy('FeeToken', 'Fee Token', feeToken.symbol, feeCollector),
    collectible: await deploy('DemoCollectible', 'Demo Collectible', 'DEMO'),
    splitter: await deploy('Splitter'),
  };

  const execute = async (to: Address, call: ContractCall) => {
    const { succeeded, hash } = await waitForReceipt(
      node,
      await sendTransaction(node, { from: deployer, to, input: encodeCall(call) }),
    );
    if (!succeeded) throw new Fault('invalid', `${call.contract}.${call.method} failed (${hash})`);
  };
  for (const trader of [...traders, visitor]) {
    for (const [name, contract] of [
      ['token', 'DemoToken'],
      ['feeToken', 'FeeToken'],
    ] as const) {
      const amount = MINTED_WHOLE_TOKENS * 10n ** BigInt(tokenFormats[name].decimals);
      await execute(contracts[name], { contract, method: 'mint', values: [trader, amount] });
    }
  }
  await execute(contracts.collectible, { contract: 'DemoCollectible', method: 'mint', values: [traders[0]] });
  return { traders, visitor, deployer, contracts };
}

/** The scene on a chain where it was created before; undefined when the contracts are not there. */
export async function findScene(node: Node, contracts: SceneContracts): Promise<Scene | undefined> {
  for (const address of Object.values(contracts)) {
    if (!(await isContract(node, address))) return undefined;
  }
  const { traders, visitor, deployer } = await castAccounts(node);
  return { traders, visitor, deployer, contracts };
}

async function castAccounts(node: Node) {
  const [first, second, third, fourth, visitor, feeCollector, deployer] = await listAccounts(node);
  if (first === undefined || second === undefined || third === undefined || fourth === undefined)
    throw tooFew();
  if (visitor === undefined || feeCollector === undefined || deployer === undefined) throw tooFew();
  return { traders: [first, second, third, fourth], visitor, feeCollector, deployer } as const;
}

function tooFew(): Fault {
  return new Fault('inconsistent', 'a development node with fewer than seven accounts');
}
