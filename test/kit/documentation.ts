/**
 * Reads code blocks from a documentation page and runs the marked ones, as a reader would.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { waitUntil } from './wait.ts';

/** A program that ignores SIGTERM for longer is killed. */
const END_MS_MAX = 30_000;
const ROOT = fileURLToPath(new URL('../..', import.meta.url));

/** `order` is the text of the comment before the block, without `runnable` and its colon. Undefined for an unmarked block. */
type CodeBlock = { language: string; text: string; order: string | undefined };

/** The code blocks of `docs/<page>`. A comment `<!-- runnable -->` or `<!-- runnable: … -->` marks the block after it. */
export function readBlocks(page: string): CodeBlock[] {
  const markdown = readFileSync(path.join(ROOT, 'docs', page), 'utf8');
  const blocks = markdown.matchAll(/(?:<!-- runnable(?:: )?(.*?) -->\n)?^( *)```(\w*)\n([\s\S]*?)^ *```$/gm);
  return Array.from(blocks, ([whole, order = '', indent = '', language = '', text = '']) => ({
    language,
    text: text.replaceAll(new RegExp(`^${indent}`, 'gm'), ''),
    order: whole.startsWith('<!-- runnable') ? order : undefined,
  }));
}

type Background = { name: string; child: ChildProcess; output: string };

/**
 * Runs the marked blocks of a page in order, as a reader would in the clone:
 *
 * - `<!-- runnable -->`: the block must succeed. Variables and functions stay for later blocks.
 * - `<!-- runnable: background until URL -->`: the block keeps running. The page continues when the URL answers below 500.
 * - `<!-- runnable: file PATH -->`: the block is written to this file.
 * - `<!-- runnable: expect TEXT from URL -->`: the background block of this URL must print the text.
 *
 * `replace` changes texts of the page, such as ports that may be taken. Ends all processes that it started.
 */
export async function followPage(
  page: string,
  { replace, environment }: { replace: Record<string, string>; environment: Record<string, string> },
): Promise<void> {
  const replaced = (text: string) =>
    Object.entries(replace).reduce((result, [from, to]) => result.replaceAll(from, to), text);
  const options = { cwd: ROOT, env: { ...process.env, ...environment } };
  const background: Background[] = [];
  let before = 'set -o pipefail\n';
  try {
    for (const block of readBlocks(page)) {
      if (block.order === undefined) continue;
      const [order, text] = [replaced(block.order), replaced(block.text)];
      const [, file] = /^file (.+)$/.exec(order) ?? [];
      const [, url] = /^background until (.+)$/.exec(order) ?? [];
      const [, expected = '', source] = /^expect (.+) from (.+)$/.exec(order) ?? [];
      if (file !== undefined) {
        mkdirSync(path.dirname(path.resolve(ROOT, file)), { recursive: true });
        writeFileSync(path.resolve(ROOT, file), text);
      } else if (url !== undefined) {
        const child = spawn('bash', ['-c', `${before}\n${text}`], { ...options, detached: true });
        const running: Background = { name: url, child, output: '' };
        background.push(running);
        for (const stream of [child.stdout, child.stderr])
          stream.on('data', (data) => {
            running.output += String(data);
          });
        await waitUntil(() => doesAnswer(url, running), { describe: `${page}: ${url}` });
      } else if (source !== undefined) {
        const running = background.find(({ name }) => name === source);
        await waitUntil(() => running?.output.includes(expected) === true, {
          describe: `${page}: ${expected} in ${running?.output}`,
        });
      } else {
        // Later blocks repeat only its assignments and functions.
        await runBlock(`${before}\n${text}`, options);
        before += keptOf(text);
      }
    }
  } finally {
    for (const { child } of background.reverse()) await endGroup(child);
  }
}

/** The lines that define a function or a variable for later blocks. */
function keptOf(text: string): string {
  const isDefinition = /^(\w+\(\) \{|[A-Z_]+=)/.test(text);
  return isDefinition ? `${text}\n` : '';
}

async function doesAnswer(url: string, { child, output }: Background): Promise<boolean> {
  if (child.exitCode !== null) throw new Error(`it ended with ${child.exitCode}: ${output}`);
  return fetch(url, { signal: AbortSignal.timeout(5_000) }).then(
    ({ status }) => status < 500,
    () => false,
  );
}

async function runBlock(script: string, options: { cwd: string; env: NodeJS.ProcessEnv }): Promise<void> {
  const child = spawn('bash', ['-c', script], options);
  let output = '';
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (data) => {
      output += String(data);
    });
  const code = await new Promise<number | null>((resolve) => child.once('close', resolve));
  if (code !== 0) throw new Error(`the block ended with ${code}:\n${script}\n${output}`);
}

async function endGroup(child: ChildProcess): Promise<void> {
  if (child.pid === undefined || child.exitCode !== null || child.signalCode !== null) return;
  const ended = new Promise<void>((resolve) => child.once('close', () => resolve()));
  process.kill(-child.pid, 'SIGTERM');
  const [group, late] = [-child.pid, new AbortController()];
  delay(END_MS_MAX, undefined, { signal: late.signal }).then(
    () => process.kill(group, 'SIGKILL'),
    () => {},
  );
  await ended;
  late.abort();
}
