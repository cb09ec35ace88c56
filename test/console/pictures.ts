/**
 * `npm run pictures`: pictures of every screen of the console with the demo's data, light, dark and at 360 px, in
 * console/screenshots, to be looked at. `--docs` also writes the pictures of README and docs, with few colors. `--fonts` names a
 * folder with a fonts.conf, because the fonts of a bare machine are those of no desktop.
 */
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import type { Database } from '../../src/store/db/db.ts';
import { sql } from '../../src/store/db/sql.ts';
import { startBrowser, type View } from '../kit/browser.ts';
import { startConsoleDemo } from '../kit/console-demo.ts';
import { screens } from '../kit/console-screens.ts';
import { buildConsole } from '../kit/console-stage.ts';
import { waitUntil } from '../kit/wait.ts';

const FOLDER = fileURLToPath(new URL('../../console/screenshots', import.meta.url));
const DOCS = fileURLToPath(new URL('../../docs/images', import.meta.url));
const DOCS_PICTURES = [
  'overview-light',
  'overview-dark',
  'delivery-dark',
  'receivers-light',
  'pair-light',
  'system-dark',
];
const COLORS = 96;
/** Data that arrives a little later, such as fonts and the first live rows. */
const SETTLE_MS = 1_500;
const views: Record<string, View> = {
  light: { theme: 'light' },
  dark: { theme: 'dark' },
  phone: { width: 360, height: 740 },
};

type Upng = {
  decode(bytes: ArrayBuffer): { width: number; height: number };
  toRGBA8(image: object): ArrayBuffer[];
  encode(frames: ArrayBuffer[], width: number, height: number, colors: number): ArrayBuffer;
};

const { values: flags } = parseArgs({
  options: { docs: { type: 'boolean' }, fonts: { type: 'string' }, only: { type: 'string', multiple: true } },
});
const ends: (() => Promise<void>)[] = [];
try {
  await main();
} finally {
  for (const end of ends.reverse()) await end();
}
process.exit();

async function main(): Promise<void> {
  await buildConsole();
  const demo = await startConsoleDemo();
  ends.push(() => demo[Symbol.asyncDispose]());
  await inventHistory(demo.database);
  const browser = await startBrowser({ fonts: flags.fonts });
  ends.push(() => browser.close());
  await mkdir(FOLDER, { recursive: true });
  for (const screen of screens) {
    if (flags.only !== undefined && !flags.only.includes(screen.name)) continue;
    for (const [name, view] of Object.entries(views)) {
      const page = await demo.show(browser, screen, () => {}, view);
      await page.waitForTimeout(SETTLE_MS);
      await page.screenshot({ path: path.join(FOLDER, `${screen.name}-${name}.png`) });
      await page.context().close();
    }
    process.stdout.write(`${screen.name}\n`);
  }
  if (flags.docs === true) for (const name of DOCS_PICTURES) await reduceColors(name);
}

/**
 * A day and a month before the demo began, so that the charts have something to show: the sums of the present hour and day, grown
 * and repeated.
 */
async function inventHistory(database: Database): Promise<void> {
  await database.query(sql`
      with past as (
        select s.*, n, case unit when 'h' then interval '1 hour' else interval '1 day' end * n as earlier,
          round(120 * (1.3 + sin(n / 4.0)) * case unit when 'h' then 1 else 20 end)::bigint as size
        from delivery_sum s, generate_series(1, 62) as n where unit in ('h', 'd')
      )
      insert into delivery_sum (shard_id, unit, started_at, origin, attempts, failed_attempts, delivered, first_attempt,
        answered, answer_ms, latencies, answers)
      select shard_id, unit, started_at - earlier, origin,
        delivered * size + failed, failed, delivered * size, delivered * size - delivered * size / 90,
        answered * size, answer_ms * size, latencies, answers
      from (
        select *, case when n < 4 then delivered * size / 6 when n % 5 = 0 then delivered * size / 200 else 0 end as failed
        from past
      ) as p
      on conflict do nothing`);
  await database.query(sql`update statistics_state set counted_from = now() - interval '70 days'`);
  // The next step builds the windows from these.
  await database.script(`truncate receiver_window; delete from delivery_sum where unit in ('H', 'D')`);
  await waitUntil(async () => {
    const built = await database.query(sql`select from receiver_window where built_parts = parts`);
    return built.length === 2;
  });
}

/** The picture for README and docs, at a third of its size. */
async function reduceColors(name: string): Promise<void> {
  const upng: Upng = createRequire(import.meta.url)('upng-js');
  const bytes = await readFile(path.join(FOLDER, `${name}.png`));
  const image = upng.decode(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength));
  const reduced = upng.encode(upng.toRGBA8(image), image.width, image.height, COLORS);
  await mkdir(DOCS, { recursive: true });
  await writeFile(path.join(DOCS, `${name}.png`), Buffer.from(reduced));
}
