/**
 * The data that a demo leaves for the next start: a chain, a database, and a note that connects them.
 */
import { chmodSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { basename, join, resolve } from 'node:path';
import { demoConfigFile } from '../src/config/config-file.ts';
import { Fault } from '../src/core/fault.ts';
import { whyUnreadable } from '../src/core/file-fault.ts';

/** Absolute paths of one demo's data. Their names don't collide with other files in the folder. */
export type DemoFolder = {
  folder: string;
  chainFolder: string;
  chainStateFile: string;
  /** The service's `dataDir`: the embedded database and its secret. */
  serviceFolder: string;
  noteFile: string;
  /** Exists while the demo runs, for commands beside it. */
  configFile: string;
};

/** The facts that a continued demo needs. Only its owner can read the file, because it contains the API key and the operator's token. */
export type DemoNote = {
  apiKey: string;
  /** Undefined in the note of an earlier version. */
  adminToken?: string | undefined;
  /** The webhook URL of the demo's watched addresses. */
  receiverUrl: string;
  /** The timestamp of the chain's genesis block, in seconds. */
  genesisTime: number;
};

/** Creates the folder if it is missing. @throws Fault `invalid` if that is not possible */
export function openDemoFolder(path: string): DemoFolder {
  const folder = resolve(path);
  try {
    mkdirSync(folder, { recursive: true });
  } catch (error) {
    const reason = whyUnreadable(error);
    throw new Fault(
      'invalid',
      `cannot use the folder ${folder}: ${reason}. Name another one with --data-dir`,
    );
  }
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

/** Removes only the data of a demo. No process may be using it. */
export function clearDemoFolder({ chainFolder, serviceFolder, noteFile }: DemoFolder): void {
  rmSync(noteFile, { force: true });
  for (const path of [chainFolder, serviceFolder]) rmSync(path, { recursive: true, force: true });
}

/** The note of the previous start. Undefined if there was none or it can't be read. */
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
  // The mode above applies only to a new file.
  chmodSync(noteFile, 0o600);
}

/** JSON is valid YAML. */
export function writeDemoConfig({ configFile }: DemoFolder, config: object): void {
  writeFileSync(configFile, `${JSON.stringify(config, undefined, 2)}\n`, { mode: 0o600 });
}

export function removeDemoConfig({ configFile }: DemoFolder): void {
  rmSync(configFile, { force: true });
}

function isDemoNote(value: unknown): value is DemoNote {
  if (typeof value !== 'object' || value === null) return false;
  const { apiKey, adminToken, receiverUrl, genesisTime }: Record<string, unknown> = { ...value };
  const isToken = adminToken === undefined || typeof adminToken === 'string';
  return (
    isToken &&
    typeof apiKey === 'string' &&
    typeof receiverUrl === 'string' &&
    Number.isSafeInteger(genesisTime)
  );
}
