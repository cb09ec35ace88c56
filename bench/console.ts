/**
 * Measures the console in a real browser: its size, how soon its first screen is usable, how long after its answer an attempt is on the
 * screen, and how the live list bears 10,000 attempts a minute (test/kit/console-imitation.ts).
 */
import { setTimeout as delay } from 'node:timers/promises';
import type { CDPSession, Page } from 'playwright-core';
import { type ConsoleFiles, PAGE, readConsole } from '../src/api/http/console-files.ts';
import type { Address } from '../src/core/hex.ts';
import { openTab, startBrowser } from '../test/kit/browser.ts';
import { startImitation } from '../test/kit/console-imitation.ts';
import { type ConsoleStage, createConsoleStage } from '../test/kit/console-stage.ts';
import { createTestDatabase } from '../test/kit/database.ts';
import { freshAddress } from '../test/kit/service.ts';
import { startApiProcess } from './api-process.ts';
import type { Figures } from './figures.ts';
import { inTurn } from './repeats.ts';
import { spreadOf } from './spread.ts';
import { percentile } from './stage.ts';

const VISITS = 20;
const PAYMENTS = 200;
/** Slower than the stream's batches, so that each attempt is measured by itself. */
const PAYMENT_MS = 150;
const ATTEMPTS_PER_MINUTE = 10_000;
const MINUTES = 10;
const FRAME_MS_MAX = 50;
/** A page whose thread is busy for less of a frame could draw it in time, at 60 Hz. */
const BUSY_MS = FRAME_MS_MAX - 1000 / 60;
/** Times of frames are rounded, so that three refreshes of 60 Hz are 49.9 to 50.1 ms. */
const ROUNDING_MS = 0.2;
/** How long the same list is measured without attempts, to see what the machine does to frames. */
const STILL_MINUTES = 3;
const MEMORY_PAIRS = 5;
/** After this time the start's garbage is collected and its pages are returned. */
const IDLE_MS = 20_000;

export async function consoleFigures(): Promise<Figures> {
  await using stage = await createConsoleStage();
  const rows: Figures['rows'] = [...sizes(readConsole()), ...(await serviceMemory())];
  const address = freshAddress();
  await stage.watcher.watch({ address, webhookUrl: stage.receiver.url });
  rows.push(await visits(stage));
  rows.push(await onScreen(stage, address));
  rows.push(...(await flood()));
  return {
    conditions: {
      visits: VISITS,
      payments: PAYMENTS,
      attemptsPerMinute: ATTEMPTS_PER_MINUTE,
      minutes: MINUTES,
    },
    rows,
  };
}

function sizes(files: ConsoleFiles): Figures['rows'] {
  const page = files.get(PAGE)?.forms.identity.toString() ?? '';
  const isCode = (name: string) => /\.(js|css)$/.test(name);
  const all = [...files].filter(([name]) => isCode(name));
  const first = all.filter(([name]) => page.includes(`/console/${name}`));
  const kib = (list: typeof all, form: 'br' | 'gzip') =>
    list.reduce((sum, [, file]) => sum + file.forms[form].length, 0) / 1024;
  const held = [...files.values()].flatMap(({ forms }) => Object.values(forms));
  return [
    {
      measured: 'scripts and styles of the first screen',
      brotliKiB: kib(first, 'br'),
      gzipKiB: kib(first, 'gzip'),
    },
    { measured: 'all scripts and styles', brotliKiB: kib(all, 'br'), gzipKiB: kib(all, 'gzip') },
    { measured: 'what the service keeps', KiB: held.reduce((sum, { length }) => sum + length, 0) / 1024 },
  ];
}

/** Resident memory of a process with the role `api`, with the console and without, in pairs of starts. */
async function serviceMemory(): Promise<Figures['rows']> {
  const ways = [true, false] as const;
  const resident = new Map<boolean, number[]>(ways.map((hasConsole) => [hasConsole, []]));
  for (let pair = 1; pair <= MEMORY_PAIRS; pair += 1)
    for (const hasConsole of inTurn(ways, pair))
      resident.get(hasConsole)?.push(await residentMiB(hasConsole));
  const withConsole = resident.get(true) ?? [];
  const without = resident.get(false) ?? [];
  return [
    { measured: 'service with the console', residentMiB: spreadOf(withConsole) },
    { measured: 'service without the console', residentMiB: spreadOf(without) },
    {
      measured: 'growth of the service, by pair',
      residentMiB: spreadOf(
        withConsole.map((one, index) => Number((one - (without[index] ?? 0)).toFixed(1))),
      ),
    },
  ];
}

/** With the console, every file of it is read once, and without it another document as often. */
async function residentMiB(hasConsole: boolean): Promise<number> {
  await using database = await createTestDatabase('postgres');
  const environment = { CHAINBELL_HTTP_CONSOLE: String(hasConsole) };
  await using program = await startApiProcess({ databaseUrl: database.url, environment });
  for (const [name] of readConsole())
    await (await fetch(`${program.url}/${hasConsole ? `console/${name}` : 'openapi.json'}`)).arrayBuffer();
  await delay(IDLE_MS);
  return Number(program.residentMiB().toFixed(1));
}

/** From the start of the navigation until the overview has its figures and its list, with an empty cache. */
async function visits(stage: ConsoleStage): Promise<Figures['rows'][number]> {
  const times: number[] = [];
  for (let visit = 0; visit < VISITS; visit += 1) {
    const { page, context } = await openTab(stage.browser);
    const startedAt = performance.now();
    await page.goto(`${stage.service.apiUrl}/console#key=${stage.watcher.key}`, { waitUntil: 'commit' });
    await page.getByText('Needs attention').waitFor();
    await page.getByText('Deliveries by hour').waitFor();
    times.push(performance.now() - startedAt);
    await context.close();
  }
  return {
    measured: 'first screen usable',
    medianMs: percentile(sorted(times), 0.5),
    maxMs: Math.max(...times),
  };
}

/** From the receiver's answer until the row of the attempt is in the page. */
async function onScreen(stage: ConsoleStage, address: Address): Promise<Figures['rows'][number]> {
  const answeredAt = new Map<number, number>();
  stage.receiver.setAnswer(({ json }) => {
    answeredAt.set((json as { id: number }).id, Date.now());
    return {};
  });
  const page = await stage.open('/deliveries', { key: stage.watcher.key });
  await page.getByTitle('Live', { exact: true }).waitFor();
  await page.evaluate(WATCH_ROWS);
  for (let payment = 0; payment < PAYMENTS; payment += 1) {
    await stage.chain.transferNative({ from: stage.chain.accounts[1], to: address, valueWei: 1n });
    await delay(PAYMENT_MS);
  }
  await delay(2_000);
  const shown = await page.evaluate<[number, number][]>('[...shownAt]');
  const times = shown.flatMap(([id, at]) => {
    const answered = answeredAt.get(id);
    return answered === undefined ? [] : at - answered;
  });
  await page.context().close();
  return {
    measured: 'attempt on the screen after its answer',
    attempts: times.length,
    p50Ms: percentile(sorted(times), 0.5),
    p99Ms: percentile(sorted(times), 0.99),
    maxMs: Math.max(...times),
  };
}

/** Notes when each delivery first appears. */
const WATCH_ROWS = `
  globalThis.shownAt = new Map();
  new MutationObserver(() => {
    for (const link of document.querySelectorAll('tbody a.row-link')) {
      const id = Number(link.href.split('/').at(-1));
      if (!shownAt.has(id)) shownAt.set(id, Date.now());
    }
  }).observe(document.body, { childList: true, subtree: true, attributeFilter: ['href'] });`;

/**
 * Notes each frame and long task since the last look. A timer shows how long the page's thread was busy in a frame: it comes every
 * 4 ms while nothing else runs.
 */
const WATCH_FRAMES = `
  globalThis.frames = [];
  globalThis.tasks = [];
  new PerformanceObserver((list) => tasks.push(...list.getEntries().map(({ duration }) => duration))).observe({ type: 'longtask' });
  let last = performance.now();
  let beatAt = last;
  let busyMs = 0;
  const beat = () => {
    const gapMs = performance.now() - beatAt;
    if (gapMs > 10) busyMs += gapMs;
    beatAt += gapMs;
  };
  const onTimer = () => { beat(); setTimeout(onTimer, 4); };
  onTimer();
  const note = (now) => {
    beat();
    frames.push({ ms: now - last, busyMs });
    last = now;
    busyMs = 0;
    requestAnimationFrame(note);
  };
  requestAnimationFrame(note);`;

async function flood(): Promise<Figures['rows']> {
  const imitation = await startImitation({ attemptsPerMinute: ATTEMPTS_PER_MINUTE });
  const browser = await startBrowser();
  try {
    const { page, context } = await openTab(browser);
    await page.goto(`${imitation.url}/console/deliveries#key=cb_live_imitation`);
    await page.locator('tbody tr').nth(20).waitFor();
    await page.evaluate(WATCH_FRAMES);
    const session = await context.newCDPSession(page);
    const rows: Figures['rows'] = [];
    for (let minute = 0; minute <= MINUTES; minute += 1) {
      if (minute > 0) await delay(60_000);
      const measured = await frames(page);
      const heapMiB = (await heapBytes(session)) / 1024 / 1024;
      rows.push({ measured: `live list, minute ${minute}`, heapMiB, ...measured });
      // The collection of garbage that the measurement asked for takes a frame of its own, which ends after the answer.
      await page.evaluate(
        'new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))',
      );
      await frames(page);
    }
    await page.keyboard.press('l');
    await delay(5_000);
    await frames(page);
    for (let minute = 1; minute <= STILL_MINUTES; minute += 1) {
      await delay(60_000);
      rows.push({ measured: `the same list, not live, minute ${minute}`, ...(await frames(page)) });
    }
    return rows;
  } finally {
    await browser.close();
    await imitation.close();
  }
}

/** What is alive after a collection of garbage. */
async function heapBytes(session: CDPSession): Promise<number> {
  await session.send('HeapProfiler.collectGarbage');
  const { usedSize } = await session.send('Runtime.getHeapUsage');
  return usedSize;
}

async function frames(page: Page): Promise<Record<string, number>> {
  const { drawn, tasks } = await page.evaluate<{ drawn: { ms: number; busyMs: number }[]; tasks: number[] }>(
    '({ drawn: frames.splice(0), tasks: tasks.splice(0) })',
  );
  const durations = drawn.map(({ ms }) => ms);
  const late = drawn.filter(({ ms }) => ms > FRAME_MS_MAX + ROUNDING_MS);
  return {
    frames: durations.length,
    p99Ms: percentile(sorted(durations), 0.99),
    longestFrameMs: Math.max(0, ...durations),
    framesOver50Ms: late.length,
    ofThesePageBusy: late.filter(({ busyMs }) => busyMs > BUSY_MS).length,
    tasksOver50Ms: tasks.length,
  };
}

const sorted = (values: readonly number[]): number[] => values.toSorted((one, other) => one - other);
