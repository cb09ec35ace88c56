/**
 * The compiled contracts of the development chain, as creations and calls are encoded from them.
 */
import { readFileSync } from 'node:fs';
import { type Abi, decodeFunctionResult, encodeDeployData, encodeFunctionData } from 'viem';
import type { Hex } from '../src/core/hex.ts';

/** A contract of devnet/contracts. */
export type ContractName =
  | 'DemoToken'
  | 'FeeToken'
  | 'DemoCollectible'
  | 'Splitter'
  | 'Purse'
  | 'Till'
  | 'Animal'
  | 'Zoo';

/** What devnet/compile.ts writes for each contract. */
export type Artifact = { abi: Abi; bytecode: Hex };

/** A method of a contract, with the values that it is called with. */
export type ContractCall = { contract: ContractName; method: string; values?: readonly unknown[] };

const artifacts = readArtifacts();

/** The input of the transaction that creates the contract; `values` are for its constructor. */
export function encodeCreation(contract: ContractName, values: readonly unknown[] = []): Hex {
  const { abi, bytecode } = artifacts[contract];
  return encodeDeployData({ abi, bytecode, args: values });
}

/** The input of a transaction or an eth_call. */
export function encodeCall({ contract, method, values = [] }: ContractCall): Hex {
  return encodeFunctionData({ abi: artifacts[contract].abi, functionName: method, args: values });
}

/** The value that a method returned. */
export function decodeResult({ contract, method }: ContractCall, result: Hex): unknown {
  return decodeFunctionResult({ abi: artifacts[contract].abi, functionName: method, data: result });
}

function readArtifacts(): Record<ContractName, Artifact> {
  const all: Record<string, unknown> = JSON.parse(
    readFileSync(new URL('./contracts/artifacts.json', import.meta.url), 'utf8'),
  );
  const artifact = (name: ContractName): Artifact => {
    const candidate = all[name];
    if (!isArtifact(candidate)) throw new Error(`artifacts.json has no ${name}; run: node devnet/compile.ts`);
    return candidate;
  };
  return {
    DemoToken: artifact('DemoToken'),
    FeeToken: artifact('FeeToken'),
    DemoCollectible: artifact('DemoCollectible'),
    Splitter: artifact('Splitter'),
    Purse: artifact('Purse'),
    Till: artifact('Till'),
    Animal: artifact('Animal'),
    Zoo: artifact('Zoo'),
  };
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
