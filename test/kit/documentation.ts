/**
 * Reads code blocks from a documentation page, and runs the marked ones as a reader would.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { appendFileSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { waitUntil } from './wait.ts';

/** A program that ignores SIGTERM for longer is killed. */
const END_MS_MAX = 30_000;
/** Three minutes, because the demo needs one on a busy machine. */
const START_MS_MAX = 180_000;
/** How often a block is repeated until it prints what the page promises. */
const REPEAT_MS = 1_000;
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

type Background = { url: string; child: ChildProcess; output: string };
type SpawnPlace = { cwd: string; env: NodeJS.ProcessEnv };

/**
 * Runs the marked blocks of a page in order, as a reader would in the clone:
 *
 * - `<!-- runnable -->`: the block must succeed. Variables and functions stay for later blocks.
 * - `<!-- runnable: until TEXT -->`: the block is repeated until it prints the text.
 * - `<!-- runnable: background until URL -->`: the block keeps running. The page continues when the URL answers below 500. If
 *   an earlier block runs at this URL, it is ended first.
 * - `<!-- runnable: file PATH -->`: the block is written to this file. `append PATH` adds it to the end of the file.
 * - `<!-- runnable: expect TEXT from URL -->`: the background block of this URL must print the text.
 *
 * `replace` changes the text of each block when its turn comes, for example ports that may be taken. Ends all processes that it
 * started.
 */
export async function followPage(
  page: string,
  {
    replace,
    environment,
  }: { replace(text: string): string | Promise<string>; environment: Record<string, string> },
): Promise<void> {
  const place = { cwd: ROOT, env: { ...process.env, ...environment } };
  const background = new Map<string, Background>();
  let before = 'set -o pipefail\n';
  try {
    for (const block of readBlocks(page)) {
      if (block.order === undefined) continue;
      const [verb, subject, source] = orderOf(await replace(block.order));
      const text = await replace(block.text);
      const script = `${before}\n${text}`;
      switch (verb) {
        case 'file':
          mkdirSync(path.dirname(path.resolve(ROOT, subject)), { recursive: true });
          writeFileSync(path.resolve(ROOT, subject), text);
          break;
        case 'append':
          appendFileSync(path.resolve(ROOT, subject), text);
          break;
        case 'background':
          await end(background.get(subject));
          background.set(subject, startBlock(script, subject, place));
          await waitUntil(() => doesAnswer(background.get(subject)), {
            describe: `${page}: ${subject}`,
            timeoutMs: START_MS_MAX,
          });
          break;
        case 'expect':
          await waitUntil(() => background.get(source)?.output.includes(subject) === true, {
            describe: `${page}: ${subject} in the output of ${source}`,
          });
          break;
        case 'until': {
          let output = '';
          const prints = async () => {
            output = await runBlock(script, place);
            return output.includes(subject);
          };
          await waitUntil(prints, { describe: `${page}: ${subject} from\n${text}`, pollMs: REPEAT_MS }).catch(
            (cause: unknown) => {
              throw new Error(`the last output was: ${output}`, { cause });
            },
          );
          break;
        }
        case 'run':
          await runBlock(script, place);
          // Later blocks repeat only its assignments and functions.
          before += keptOf(text);
      }
    }
  } finally {
    for (const running of [...background.values()].reverse()) await end(running);
  }
}

type Order = [
  verb: 'file' | 'append' | 'background' | 'expect' | 'until' | 'run',
  subject: string,
  source: string,
];

/** The order of a comment, such as `file PATH`. @throws Error for an unknown one */
function orderOf(text: string): Order {
  const ways: [Order[0], RegExp][] = [
    ['file', /^file (.+)$/],
    ['append', /^append (.+)$/],
    ['background', /^background until (.+)$/],
    ['expect', /^expect (.+) from (.+)$/],
    ['until', /^until (.+)$/],
    ['run', /^$/],
  ];
  for (const [verb, pattern] of ways) {
    const [whole, subject = '', source = ''] = pattern.exec(text) ?? [];
    if (whole !== undefined) return [verb, subject, source];
  }
  throw new Error(`no such order: ${text}`);
}

/** The lines that define a function or a variable for later blocks. */
function keptOf(text: string): string {
  const isDefinition = /^(\w+\(\) \{|[A-Z_]+=)/.test(text);
  return isDefinition ? `${text}\n` : '';
}

function startBlock(script: string, url: string, place: SpawnPlace): Background {
  const child = spawn('bash', ['-c', script], { ...place, detached: true });
  const running: Background = { url, child, output: '' };
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (data) => {
      running.output += String(data);
    });
  return running;
}

async function doesAnswer(running: Background | undefined): Promise<boolean> {
  if (running === undefined) return false;
  const { child, output, url } = running;
  if (child.exitCode !== null) throw new Error(`it ended with ${child.exitCode}: ${output}`);
  return fetch(url, { signal: AbortSignal.timeout(5_000) }).then(
    ({ status }) => status < 500,
    () => false,
  );
}

/** What the block prints. @throws Error if it fails */
async function runBlock(script: string, place: SpawnPlace): Promise<string> {
  const child = spawn('bash', ['-c', script], place);
  let output = '';
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (data) => {
      output += String(data);
    });
  const code = await new Promise<number | null>((resolve) => child.once('close', resolve));
  if (code !== 0) throw new Error(`the block ended with ${code}:\n${script}\n${output}`);
  return output;
}

async function end(running: Background | undefined): Promise<void> {
  if (running === undefined) return;
  const { child } = running;
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
