/**
 * The floor plan: the folders of the program, their contents, and the folders they may import. `test/tidy.test.ts` compares
 * imports with it, and `npm run generate` draws it in docs/explanation/architecture.md.
 */

export type Folder = { holds: string; mayImport: readonly string[]; rooms?: readonly string[] };

/**
 * Sorted from the lowest to the highest folder. A room is a folder within a folder. It may import the rooms before it. `.` means
 * the files directly in the folder. Where `.` is missing, those files may import every room.
 */
export const floorPlan: Record<string, Folder> = {
  core: {
    holds: 'what knows nothing of chains and webhooks: faults, clock, log, loops, decimals, ABI words',
    mayImport: [],
  },
  domain: {
    holds: 'pure rules: transfers, webhook URLs, retries, keys, pairs, prices, awards',
    mayImport: ['core'],
    rooms: ['.', 'expression', 'points'],
  },
  config: { holds: 'the configuration, its schema and its messages', mayImport: ['domain', 'core'] },
  chain: {
    holds: 'the nodes, and the proof of what they say',
    mayImport: ['domain', 'core'],
    rooms: ['rpc', 'proof', 'blocks', 'nodes', 'contracts'],
  },
  store: {
    holds: 'the database and all SQL',
    mayImport: ['domain', 'core'],
    rooms: [
      ...['db', 'prices', 'supply', 'points', 'market', 'delivery', 'matching', 'blocks', 'watchers'],
      ...['retention', 'deployment', 'audit'],
    ],
  },
  ingest: {
    holds: 'following the chain: blocks with their notifications, pairs and points',
    mayImport: ['chain', 'store', 'domain', 'core'],
    rooms: ['.', 'pairs', 'points'],
  },
  prices: { holds: 'price feeds and their sources', mayImport: ['chain', 'store', 'domain', 'core'] },
  audit: {
    holds: 'comparing what is stored with the chain, explaining and repairing it',
    mayImport: ['ingest', 'chain', 'store', 'domain', 'core'],
  },
  delivery: { holds: 'sending webhooks, fairly and safely', mayImport: ['store', 'domain', 'core'] },
  api: {
    holds: 'the HTTP API',
    mayImport: ['chain', 'store', 'domain', 'core'],
    rooms: ['http', 'ops', 'public', 'notifications', 'admin'],
  },
  app: {
    holds: 'the program, put together from a configuration',
    mayImport: [
      ...['api', 'delivery', 'audit', 'prices', 'ingest', 'store', 'chain', 'config', 'domain', 'core'],
    ],
  },
  cli: {
    holds: 'one file for each command',
    mayImport: ['app', 'api', 'audit', 'ingest', 'store', 'chain', 'config', 'domain', 'core', 'devnet'],
  },
};

/** Folders beside src/, and the folders they may import. */
export const outside: Record<string, readonly string[]> = {
  src: ['cli', 'core'],
  devnet: ['app', 'store', 'config', 'domain', 'core'],
  // It knows the service only by the HTTP API.
  console: [],
};

/** The rooms of console/src, as above. Its texts and its entry are directly in the folder. */
const consoleRooms: readonly string[] = ['format', 'state', 'api', 'parts', 'screens'];

/** Explains why `from` must not import `to` (both are paths from the root). Undefined where the import is allowed. */
export function importProblem(from: string, to: string): string | undefined {
  const [one, other] = [folderOf(from), folderOf(to)];
  if (one === 'bench') return undefined;
  const mayImport = floorPlan[one]?.mayImport ?? outside[one] ?? [];
  if (one !== other) return mayImport.includes(other) ? undefined : `${one} may not import ${other}`;
  const rooms = one === 'console' ? consoleRooms : (floorPlan[one]?.rooms ?? []);
  const [room, otherRoom] = [roomOf(from), roomOf(to)];
  const [place, otherPlace] = [rooms.indexOf(room), rooms.indexOf(otherRoom)];
  if (room === otherRoom || place === -1 || otherPlace === -1 || otherPlace < place) return undefined;
  return `${one}/${room} may not import ${one}/${otherRoom}`;
}

/** The folder below src/, or the top folder: `src/core/hex.ts` → core, `src/main.ts` → src, `devnet/x.ts` → devnet. */
function folderOf(file: string): string {
  const [top = '', folder = '', rest] = file.split('/');
  return top === 'src' && rest !== undefined ? folder : top;
}

function roomOf(file: string): string {
  const [, , room = '', rest] = file.split('/');
  return rest === undefined ? '.' : room;
}

/** Renders the plan as Markdown. Leaves out an arrow if other arrows lead to the same folder. */
export function renderPlan(): string {
  const names = Object.keys(floorPlan).reverse();
  const importsOf = (name: string) =>
    (floorPlan[name]?.mayImport ?? []).filter((other) => other in floorPlan);
  const reaches = (from: string, to: string): boolean =>
    importsOf(from).some((next) => next === to || reaches(next, to));
  const arrows = names.flatMap((name) =>
    importsOf(name)
      .filter((to) => !importsOf(name).some((other) => other !== to && reaches(other, to)))
      .map((to) => `  ${name} --> ${to}`),
  );
  const rows = names.map((name) => {
    const { holds, rooms = [] } = floorPlan[name] ?? { holds: '' };
    const named = rooms.filter((room) => room !== '.').map((room) => `\`${room}/\``);
    return `| \`${name}/\` | ${holds} | ${named.join(' ')} |`;
  });
  return [
    '```mermaid',
    'flowchart TD',
    ...arrows,
    '```',
    '',
    '| Folder | Holds | Rooms |',
    '|---|---|---|',
    ...rows,
  ].join('\n');
}
