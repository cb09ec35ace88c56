/**
 * Reads real blocks and their receipts from the data folder.
 */
import { existsSync, readdirSync } from 'node:fs';
import path from 'node:path';
import { readRealchain } from './replay.ts';
import type { Json } from './scripted-node.ts';

export type RealBlock = {
  /** Folder and number. */
  name: string;
  block: Json & { transactions: Json[] };
  receipts: (Json & { logs: Json[] })[];
};

const MAINNET_FOLDERS = ['semiotic', 'portal', 'erigon', 'squid', 'zkevm'];

/** The 25 complete blocks of Ethereum mainnet. */
export function readMainnetBlocks(folder: string): RealBlock[] {
  return MAINNET_FOLDERS.flatMap((source) =>
    readdirSync(path.join(folder, source))
      .filter((file) => file.endsWith('.block.json.gz'))
      .map((file) => readBlock(folder, `${source}/${file.replace('block.json.gz', '')}`)),
  );
}

/** A block of another chain, by the prefix of its file names. It has no receipts where none are stored. */
export function readBlock(folder: string, place: string): RealBlock {
  const receipts = `${place}receipts.json.gz`;
  return {
    name: place,
    block: readRealchain(folder, `${place}block.json.gz`),
    receipts: existsSync(path.join(folder, receipts)) ? readRealchain(folder, receipts) : [],
  };
}
