/**
 * The compiled contracts of the development chain, and the encoding of their creations and calls.
 */
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { type Abi, decodeFunctionResult, encodeDeployData, encodeFunctionData } from 'viem';
import type { Hex } from '../src/core/hex.ts';

/** Compiled from devnet/contracts. */
const ownContracts = [
  'Aggregator',
  'Animal',
  'Bridge',
  'DemoCollectible',
  'DemoToken',
  'Farm',
  'FeeToken',
  'Governor',
  'Multicall3',
  'Purse',
  'Referrals',
  'Splitter',
  'Till',
  'ValidatorStaking',
  'Vesting',
  'WrappedCoin',
  'Zoo',
] as const;

/** Uniswap V2 as compiled by its authors, read from their packages. These are under the GPL, so nothing of them is copied here. */
const packageContracts = {
  UniswapV2Factory: '@uniswap/v2-core/build/UniswapV2Factory.json',
  UniswapV2Pair: '@uniswap/v2-core/build/UniswapV2Pair.json',
  UniswapV2Router02: '@uniswap/v2-periphery/build/UniswapV2Router02.json',
} as const;

export type ContractName = (typeof ownContracts)[number] | keyof typeof packageContracts;

/** The output of devnet/compile.ts for each contract. */
export type Artifact = { abi: Abi; bytecode: Hex };

/** A method of a contract with its arguments. */
export type ContractCall = { contract: ContractName; method: string; values?: readonly unknown[] };

const artifacts = readArtifacts();

/** The input of the transaction that creates the contract; `values` are for its constructor. */
export function encodeCreation(contract: ContractName, values: readonly unknown[] = []): Hex {
  const { abi, bytecode } = artifactOf(contract);
  return encodeDeployData({ abi, bytecode, args: values });
}

/** The input of a transaction or an eth_call. */
export function encodeCall({ contract, method, values = [] }: ContractCall): Hex {
  return encodeFunctionData({ abi: artifactOf(contract).abi, functionName: method, args: values });
}

/** The value that a method returned. */
export function decodeResult({ contract, method }: ContractCall, result: Hex): unknown {
  return decodeFunctionResult({ abi: artifactOf(contract).abi, functionName: method, data: result });
}

function readArtifacts(): ReadonlyMap<string, Artifact> {
  const own: Record<string, unknown> = JSON.parse(
    readFileSync(new URL('./contracts/artifacts.json', import.meta.url), 'utf8'),
  );
  const { resolve } = createRequire(import.meta.url);
  const artifacts = new Map<string, Artifact>();
  for (const name of ownContracts) {
    const artifact = own[name];
    if (!isArtifact(artifact)) throw new Error(`artifacts.json has no ${name}; run: node devnet/compile.ts`);
    artifacts.set(name, artifact);
  }
  for (const [name, file] of Object.entries(packageContracts)) {
    const artifact: unknown = JSON.parse(readFileSync(resolve(file), 'utf8'));
    if (!isArtifact(artifact)) throw new Error(`${file} is not a compiled contract`);
    // The authors' compiler omitted the prefix.
    artifacts.set(name, { abi: artifact.abi, bytecode: `0x${artifact.bytecode.replace(/^0x/, '')}` });
  }
  return artifacts;
}

function artifactOf(contract: ContractName): Artifact {
  const artifact = artifacts.get(contract);
  if (artifact === undefined) throw new Error(`no contract ${contract}`);
  return artifact;
}

function isArtifact(value: unknown): value is Artifact {
  return (
    typeof value === 'object' &&
    value !== null &&
    'abi' in value &&
    Array.isArray(value.abi) &&
    'bytecode' in value &&
    typeof value.bytecode === 'string'
  );
}
