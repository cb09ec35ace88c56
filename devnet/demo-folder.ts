/**
 * What a demo leaves behind for the next start: a chain, a database, and a note of what belongs to them.
 */
import { chmodSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { basename, join, resolve } from 'node:path';
import { demoConfigFile } from '../src/config/file.ts';

/** Absolute paths of one demo's data. Their names are told apart from anything else that a folder may hold. */
export type DemoFolder = {
  folder: string;
  chainFolder: string;
  chainStateFile: string;
  /** The service's `dataDir`: the embedded database and its secret. */
  serviceFolder: string;
  noteFile: string;
  /** While the demo runs: for commands beside it. */
  configFile: string;
};

/** What a continued demo needs to know; the file can be read by its owner only, because of the key. */
export type DemoNote = {
  apiKey: string;
  /** Where the watched addresses of the demo ring. */
  receiverUrl: string;
  /** The timestamp of the chain's genesis block, in seconds. */
  genesisTime: number;
};

/** Creates the folder when it is not there. */
export function openDemoFolder(path: string): DemoFolder {
  const folder = resolve(path);
  mkdirSync(folder, { recursive: true });
  const chainFolder = join(folder, 'demo-chain');
  return {
    folder,
    chainFolder,
    chainStateFile: join(chainFolder, 'state.json'),
    serviceFolder: join(folder, 'demo-service'),
    noteFile: join(folder, 'demo.json'),
    configFile: join(folder, basename(demoConfigFile)),
  };
}

/** Removes what a demo left there, and nothing else. Nobody may be using it. */
export function clearDemoFolder({ chainFolder, serviceFolder, noteFile }: DemoFolder): void {
  rmSync(noteFile, { force: true });
  for (const path of [chainFolder, serviceFolder]) rmSync(path, { recursive: true, force: true });
}

/** The note of the start before, undefined when there was none or it cannot be read. */
export function findDemoNote({ noteFile }: DemoFolder): DemoNote | undefined {
  try {
    const note: unknown = JSON.parse(readFileSync(noteFile, 'utf8'));
    return isDemoNote(note) ? note : undefined;
  } catch {
    return undefined;
  }
}

export function writeDemoNote({ noteFile }: DemoFolder, note: DemoNote): void {
  writeFileSync(noteFile, `${JSON.stringify(note, undefined, 2)}\n`, { mode: 0o600 });
  // The mode above is for a new file only.
  chmodSync(noteFile, 0o600);
}

/** JSON is YAML, too. */
export function writeDemoConfig({ configFile }: DemoFolder, config: object): void {
  writeFileSync(configFile, `${JSON.stringify(config, undefined, 2)}\n`, { mode: 0o600 });
}

export function removeDemoConfig({ configFile }: DemoFolder): void {
  rmSync(configFile, { force: true });
}

function isDemoNote(value: unknown): value is DemoNote {
  if (typeof value !== 'object' || value === null) return false;
  const { apiKey, receiverUrl, genesisTime }: Record<string, unknown> = { ...value };
  return typeof apiKey === 'string' && typeof receiverUrl === 'string' && Number.isSafeInteger(genesisTime);
}
