/**
 * Compiles devnet/contracts/*.sol into devnet/contracts/artifacts.json, which is committed, so the demo runs without the
 * compiler. `--check` writes nothing and exits 1 if the committed file does not match the sources.
 */
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import solc from 'solc';
import type { Artifact } from './contracts.ts';

type CompilerOutput = {
  errors?: { severity: string; formattedMessage: string }[];
  contracts?: Record<string, Record<string, { abi: Artifact['abi']; evm: { bytecode: { object: string } } }>>;
};

const directory = new URL('./contracts/', import.meta.url);
const artifactsFile = new URL('artifacts.json', directory);
const require = createRequire(import.meta.url);

/** One of the contracts uses the deprecated SELFDESTRUCT on purpose, because it makes internal transfers. */
const expectedWarning = /"selfdestruct" has been deprecated/;

const settings = {
  optimizer: { enabled: true, runs: 200 },
  // Without the hash of the sources, so that a comment does not change the bytecode.
  metadata: { bytecodeHash: 'none' },
  evmVersion: 'cancun',
  outputSelection: { '*': { '*': ['abi', 'evm.bytecode.object'] } },
};

function compile(): string {
  const names = readdirSync(directory)
    .filter((name) => name.endsWith('.sol'))
    .sort();
  const sources = Object.fromEntries(
    names.map((name) => [name, { content: readFileSync(new URL(name, directory), 'utf8') }]),
  );
  const input = JSON.stringify({ language: 'Solidity', sources, settings });
  const output: CompilerOutput = JSON.parse(solc.compile(input, { import: readPackageSource }));
  const complaints = (output.errors ?? []).filter((error) => !expectedWarning.test(error.formattedMessage));
  if (complaints.length > 0) throw new Error(complaints.map((error) => error.formattedMessage).join('\n'));

  const artifacts: Record<string, Artifact> = {};
  for (const name of names) {
    for (const [contract, { abi, evm }] of Object.entries(output.contracts?.[name] ?? {})) {
      artifacts[contract] = { abi, bytecode: `0x${evm.bytecode.object}` };
    }
  }
  return `${JSON.stringify(artifacts, undefined, 1)}\n`;
}

function readPackageSource(path: string): { contents: string } | { error: string } {
  try {
    return { contents: readFileSync(require.resolve(path), 'utf8') };
  } catch {
    return { error: `not found: ${path}` };
  }
}

const compiled = compile();
if (!process.argv.includes('--check')) {
  writeFileSync(artifactsFile, compiled);
} else if (compiled !== readFileSync(artifactsFile, 'utf8')) {
  console.error('devnet/contracts/artifacts.json is not what the sources give; run: node devnet/compile.ts');
  process.exitCode = 1;
}
