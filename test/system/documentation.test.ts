/**
 * The documentation works as written: its configurations are valid, and marked blocks run.
 */
import assert from 'node:assert/strict';
import { globSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { findFreePort } from '../../devnet/free-port.ts';
import { loadConfig } from '../../src/config/load.ts';
import { followPage, readBlocks } from '../kit/documentation.ts';

const DOCS = fileURLToPath(new URL('../../docs', import.meta.url));
const TUTORIAL = 'tutorial/your-own-chain.md';
const pages = globSync('**/*.md', { cwd: DOCS }).sort();

test('every configuration in the documentation is valid', async () => {
  const folder = await mkdtemp(path.join(tmpdir(), 'chainbell-docs-'));
  try {
    const problems: string[] = [];
    let count = 0;
    for (const page of pages) {
      for (const text of configurationsOf(page)) {
        count += 1;
        const file = path.join(folder, `${count}.yaml`);
        await writeFile(file, text);
        const isWhole = /^chain:/m.test(text);
        const chain = { CHAINBELL_CHAIN_ID: '1', CHAINBELL_CHAIN_RPC: 'http://node.example' };
        try {
          loadConfig({ file, env: isWhole ? {} : chain });
        } catch (error) {
          problems.push(`${page}: ${error instanceof Error ? error.message : ''}\n${text}`);
        }
      }
    }
    assert.deepEqual(problems, []);
    assert.ok(count >= 5, `${count} configurations were found`);
  } finally {
    await rm(folder, { recursive: true });
  }
});

/** A block that begins with a space continues the block before it. */
function configurationsOf(page: string): string[] {
  const texts: string[] = [];
  for (const { text } of readBlocks(page).filter(({ language }) => language === 'yaml'))
    texts.push(text.startsWith(' ') ? `${texts.pop() ?? ''}${text}` : text);
  return texts;
}

test('every page with runnable blocks is followed', () => {
  const marked = pages.filter((page) => readBlocks(page).some(({ order }) => order !== undefined));
  assert.deepEqual(marked, [TUTORIAL]);
});

test('the tutorial about your own chain works as it is written', async () => {
  const folder = await mkdtemp(path.join(tmpdir(), 'chainbell-docs-'));
  const [chain, api, receiver, metrics] = [
    await findFreePort(0),
    await findFreePort(0),
    await findFreePort(0),
    await findFreePort(0),
  ];
  try {
    await followPage(TUTORIAL, {
      replace: {
        '8545': String(chain),
        '8080': String(api),
        '9000': String(receiver),
        '../my-chain': folder,
      },
      environment: { CHAINBELL_HTTP_PORT: String(api), CHAINBELL_METRICS_PORT: String(metrics) },
    });
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
});
